#include "gpu/checkpoint/emergency_shards.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHeldName = "HELD";
/// No plan has it: no writer of another checkpoint shares the folder.
constexpr uint64_t kNoGeneration = 0;

/// Newest first: what was taken back is of an older generation than what came in its place.
struct StateName {
  uint64_t generation = 0;
  uint64_t steps_done = 0;
  auto operator<=>(const StateName&) const = default;
};
using FoldersByState = std::map<StateName, std::vector<std::string>, std::greater<>>;

FoldersByState find_folders(const std::string& run_folder) {
  FoldersByState found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_folder + "/checkpoint", error)) {
    const std::string path = entry.path().string();
    StateName name;
    uint32_t worker = 0;
    const int read = std::sscanf(entry.path().filename().c_str(), "step-%lu.g%lu.w%u.tmp",
                                 &name.steps_done, &name.generation, &worker);
    const bool is_ours =
        read == 3 && path == emergency_path(run_folder, name.steps_done, name.generation, worker);
    if (is_ours && fs::exists(entry.path() / kHeldName, error)) found[name].push_back(path);
  }
  return found;
}

/// A file and where it lies.
struct FoundFile {
  std::string path;
  SavedFile saved;
};

bool is_whole(const std::string& folder, const Listing& listing, const std::string& name) {
  const auto listed = listing.find(name);
  return listed != listing.end() && find_file_faults(folder, name, listed->second).empty();
}

/// One whole copy of each shard; empty if one is missing.
std::vector<FoundFile> find_shards(const std::vector<std::string>& folders, int layers) {
  std::vector<std::pair<std::string, Listing>> listings;
  for (const std::string& folder : folders) {
    absl::StatusOr<Listing> listing = read_listing(folder, kHeldName);
    if (listing.ok() && is_whole(folder, *listing, kStateName)) {
      listings.emplace_back(folder, *std::move(listing));
    }
  }
  std::vector<FoundFile> found;
  for (int layer = 0; layer < layers; ++layer) {
    for (const char* kind : {"model", "optimizer"}) {
      const std::string name = shard_name(kind, layer, layers);
      const auto whole = std::find_if(listings.begin(), listings.end(), [&](const auto& each) {
        return is_whole(each.first, each.second, name);
      });
      if (whole == listings.end()) return {};
      const ListedFile& listed = whole->second.at(name);
      SavedFile saved{name, listed.bytes, listed.crc32c, {}};
      for (const auto& [tensor, digest] : listed.tensors) saved.tensors.push_back(tensor);
      found.push_back({absl::StrCat(whole->first, "/", name), std::move(saved)});
    }
  }
  return found;
}

/// The files get a second name where the file system can do that.
absl::Status link_files(const std::vector<FoundFile>& found, const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  for (const FoundFile& each : found) {
    const std::string to = absl::StrCat(folder, "/", each.saved.name);
    fs::create_hard_link(each.path, to, error);
    if (error) fs::copy_file(each.path, to, error);
    if (!error) continue;
    return absl::UnavailableError(
        absl::StrCat("cannot copy ", each.path, " to ", to, ": ", error.message()));
  }
  return sync_folder(folder);
}

/// Steps of the newest checkpoint that is whole; 0: there is none.
uint64_t newest_whole(const std::string& run_folder) {
  const auto folders = complete_checkpoints(run_folder);
  if (!folders.ok()) return 0;
  for (const std::string& folder : *folders) {
    if (!find_faults(folder).empty()) continue;
    const auto reader = CheckpointReader::open(folder);
    if (reader.ok()) return (*reader)->trainer_state().steps_done;
  }
  return 0;
}

}  // namespace

std::string emergency_path(const std::string& run_folder, uint64_t steps_done, uint64_t generation,
                           uint32_t worker) {
  return absl::StrFormat("%s/checkpoint/%s.g%08d.w%05d.tmp", run_folder,
                         checkpoint_name(steps_done), generation, worker);
}

absl::Status finish_emergency_shards(const std::string& folder, const TrainerState& state,
                                     const std::vector<SavedFile>& files) {
  Listing listing;
  for (const SavedFile& file : files) {
    SKEIN_ASSIGN_OR_RETURN(const auto written,
                           SafetensorsFile::open(absl::StrCat(folder, "/", file.name)));
    listing[file.name] = {file.bytes, file.crc32c, tensor_digests(*written)};
  }
  const std::string text = to_json(state).dump(2) + "\n";
  SKEIN_RETURN_IF_ERROR(write_durably(absl::StrCat(folder, "/", kStateName), text));
  listing[kStateName] = {text.size(), crc32c(std::as_bytes(std::span(text))), {}};
  return write_durably(absl::StrCat(folder, "/", kHeldName), to_json(listing).dump(2) + "\n");
}

absl::StatusOr<std::string> adopt_emergency_shards(const std::string& run_folder,
                                                   const plans::JobSpec& job,
                                                   const FindLoss& find_loss) {
  const auto layers = static_cast<int>(plans::layer_count(job.model));
  const FoldersByState left = find_folders(run_folder);
  if (left.empty()) return std::string();  // Nothing is read then.
  const uint64_t newest = newest_whole(run_folder);
  for (const auto& [name, folders] : left) {
    if (name.steps_done <= newest) continue;
    const std::optional<double> loss = find_loss(name.steps_done, name.generation);
    if (!loss) continue;
    const std::vector<FoundFile> found = find_shards(folders, layers);
    if (found.empty()) continue;
    absl::StatusOr<TrainerState> state =
        read_trainer_state(fs::path(found.front().path).parent_path());
    if (!state.ok() || state->steps_done != name.steps_done) continue;
    state->loss = *loss;
    SKEIN_RETURN_IF_ERROR(
        link_files(found, partial_checkpoint_path(run_folder, name.steps_done, kNoGeneration)));
    std::vector<SavedFile> files;
    for (const FoundFile& each : found) files.push_back(each.saved);
    return complete_checkpoint(run_folder, kNoGeneration, job.model, *state, files,
                               job.checkpoint.keep_latest_k);
  }
  return std::string();
}

}  // namespace skein::gpu
