#include "gpu/checkpoint/emergency_shards.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/checkpoint/folder_name.hpp"
#include "gpu/files/check_there.hpp"
#include "gpu/files/durable_file.hpp"
#include "gpu/files/mapped_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;

/// No plan has it: no writer of another checkpoint shares the folder.
constexpr uint64_t kNoGeneration = 0;

/// Newest first: what was taken back is of an older generation than what came in its place.
struct StateName {
  uint64_t generation = 0;
  uint64_t steps_done = 0;
  auto operator<=>(const StateName&) const = default;
};
using FoldersByState = std::map<StateName, std::vector<std::string>, std::greater<>>;

/// Finished ones; the others, too, if asked.
FoldersByState find_folders(const std::string& run_folder, bool with_unfinished = false) {
  FoldersByState found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_folder + "/checkpoint", error)) {
    const std::string path = entry.path().string();
    const auto name = parse_folder_name(entry.path().filename().string());
    if (!name || !is_left_state(*name)) continue;
    if (!with_unfinished && !has_emergency_shards(path)) continue;
    found[{*name->generation, name->steps_done}].push_back(path);
  }
  return found;
}

/// Something was written in it lately. In a finished one, nothing is newer than HELD until its
/// worker adds to it.
bool is_being_written(const std::string& folder) {
  // A disk may take so long for a layer; whoever has died writes no more.
  constexpr std::chrono::seconds kLately(20);
  const bool is_finished = has_emergency_shards(folder);
  std::error_code error;
  const fs::file_time_type begun =
      fs::last_write_time(is_finished ? absl::StrCat(folder, "/", kHeldName) : folder, error);
  if (error) return false;
  fs::file_time_type newest = begun;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    std::error_code gone;  // Renamed meanwhile, perhaps; its time is the oldest then.
    newest = std::max(newest, file.last_write_time(gone));
  }
  const auto age = fs::file_time_type::clock::now() - newest;
  // One in the future is by another machine's clock: within limits, too.
  return !error && (!is_finished || newest > begun) && age < kLately && age > -kLately;
}

/// A file and where it lies.
struct FoundFile {
  std::string path;
  SavedFile saved;
};

/// It is there, and may be whole: who reads it must have the rights, or another disk.
bool is_unread(const absl::Status& fault) {
  return absl::IsPermissionDenied(fault) || absl::IsUnavailable(fault);
}

/// Ok if the file is there, is one of ours and is what was written.
absl::Status check_file(const std::string& folder, const Listing& listing,
                        const std::string& name) {
  const std::string path = absl::StrCat(folder, "/", name);
  const auto listed = listing.find(name);
  if (listed == listing.end()) return absl::NotFoundError(absl::StrCat(path, " is not there"));
  std::error_code error;
  const fs::file_status there = fs::symlink_status(path, error);
  if (fs::status_known(there) && !fs::is_regular_file(there)) {
    return absl::DataLossError(absl::StrCat(path, " is no file"));
  }
  SKEIN_RETURN_IF_ERROR(MappedFile::open(path).status());
  const std::vector<std::string> faults = find_file_faults(folder, name, listed->second);
  return faults.empty() ? absl::OkStatus() : absl::DataLossError(faults.front());
}

using TensorShapes = std::map<std::string, std::vector<int64_t>>;  // By name.

/// Ok if the shard has tensors of the model only, in their shapes.
absl::Status check_tensors(const std::string& path, const TensorShapes& shapes) {
  SKEIN_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(path));
  for (const auto& [name, entry] : file->tensors()) {
    const auto shape = shapes.find(name);
    if (shape == shapes.end() || shape->second != entry.shape) {
      return absl::DataLossError(
          absl::StrCat(path, " has a tensor ", name, " that is none of the model"));
    }
  }
  return absl::OkStatus();
}

/// A folder and what HELD says of it.
struct ListedFolder {
  std::string path;
  Listing listing;
};

/// What the worker said of the state is whole, and the state may be the run's.
absl::StatusOr<ListedFolder> list_left(const std::string& folder, const std::string& run) {
  SKEIN_ASSIGN_OR_RETURN(Listing listing, read_listing(folder, kHeldName));
  SKEIN_RETURN_IF_ERROR(check_file(folder, listing, kStateName));
  SKEIN_ASSIGN_OR_RETURN(const TrainerState state, read_trainer_state(folder));
  if (may_be_of_run(state, run)) return ListedFolder{folder, std::move(listing)};
  return absl::FailedPreconditionError(
      absl::StrCat(folder, " is of run ", state.run, ", and this is ", run));
}

/// A whole copy of the shard; else what is wrong with one, of which one that cannot be read comes
/// before others.
absl::StatusOr<FoundFile> find_shard(const std::vector<ListedFolder>& folders,
                                     const std::string& name, const TensorShapes& shapes) {
  absl::Status fault = absl::NotFoundError(absl::StrCat("nobody has left ", name));
  for (const ListedFolder& folder : folders) {
    FoundFile found{absl::StrCat(folder.path, "/", name), {}};
    absl::Status status = check_file(folder.path, folder.listing, name);
    if (status.ok()) status = check_tensors(found.path, shapes);
    if (!status.ok() && !is_unread(fault)) fault = status;
    if (!status.ok()) continue;
    const ListedFile& listed = folder.listing.at(name);
    found.saved = {name, listed.bytes, listed.crc32c, {}};
    for (const auto& [tensor, digest] : listed.tensors) found.saved.tensors.push_back(tensor);
    return found;
  }
  return fault;
}

/// One whole copy of each shard.
///
/// DataLoss      there is none of one: what is wrong with it, and with folders that may have had it
/// Unavailable   the same, but one that cannot be read may have it
absl::StatusOr<std::vector<FoundFile>> find_shards(const std::vector<std::string>& folders,
                                                   const plans::JobSpec& job,
                                                   const std::string& run) {
  constexpr size_t kToldMax = 4;  // A line is read by somebody.
  std::vector<ListedFolder> listed;
  std::vector<std::string> unread, faults;
  const auto keep_fault = [&](const absl::Status& fault) {
    (is_unread(fault) ? unread : faults).emplace_back(fault.message());
  };
  for (const std::string& folder : folders) {
    absl::StatusOr<ListedFolder> each = list_left(folder, run);
    if (!each.ok()) keep_fault(each.status());
    if (each.ok()) listed.push_back(*std::move(each));
  }
  const auto layers = static_cast<int>(plans::layer_count(job.model));
  const TensorShapes shapes = tensor_shapes(job.model, job.optimizer.name);
  std::vector<FoundFile> files;
  absl::Status lacking;
  for (int shard = 0; shard < 2 * layers && lacking.ok(); ++shard) {
    const char* kind = shard % 2 == 0 ? "model" : "optimizer";
    absl::StatusOr<FoundFile> file =
        find_shard(listed, shard_name(kind, shard / 2, layers), shapes);
    lacking = file.status();
    if (file.ok()) files.push_back(*std::move(file));
  }
  if (lacking.ok()) return files;
  if (!listed.empty()) keep_fault(lacking);
  const bool may_be_whole = !unread.empty();
  unread.insert(unread.end(), faults.rbegin(), faults.rend());
  const size_t more = unread.size() - std::min(unread.size(), kToldMax);
  unread.resize(unread.size() - more);
  const std::string text = absl::StrCat(absl::StrJoin(unread, "; "),
                                        more > 0 ? absl::StrCat(" (and ", more, " more)") : "");
  return may_be_whole ? absl::UnavailableError(text) : absl::DataLossError(text);
}

absl::Status make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", error.message()));
}

/// A file that can have no second name there gets a copy.
absl::Status copy_durably(const std::string& from, const std::string& to) {
  const auto file = MappedFile::open(from);
  if (!file.ok()) return absl::UnavailableError(file.status().message());
  return write_durably(to, {std::span((*file)->data(), (*file)->bytes())});
}

/// The files get a second name where the file system can do that.
absl::Status link_files(const std::vector<FoundFile>& found, const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  SKEIN_RETURN_IF_ERROR(make_folder(folder));
  for (const FoundFile& each : found) {
    const std::string to = absl::StrCat(folder, "/", each.saved.name);
    fs::create_hard_link(each.path, to, error);
    if (error) SKEIN_RETURN_IF_ERROR(copy_durably(each.path, to));
  }
  return sync_folder(folder);
}

/// Completes a checkpoint that is newer than all. One that has its name is made, whatever went
/// wrong after that: who tries again would find nothing newer.
absl::StatusOr<std::string> complete_adopted(const std::string& run_folder,
                                             const plans::JobSpec& job, const TrainerState& state,
                                             const std::vector<SavedFile>& files) {
  absl::StatusOr<std::string> path = complete_checkpoint(
      run_folder, kNoGeneration, job.model, state, files, job.checkpoint.keep_latest_k);
  if (path.ok()) return path;
  const auto whole = newest_whole_checkpoint(run_folder, state.run);
  const bool is_made =
      whole.ok() && whole->reader && whole->reader->trainer_state().steps_done == state.steps_done;
  return is_made ? whole->reader->folder() : path;
}

}  // namespace

std::string emergency_path(const std::string& run_folder, uint64_t steps_done, uint64_t generation,
                           uint32_t worker) {
  return absl::StrCat(run_folder, "/checkpoint/", to_text({steps_done, generation, worker}));
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
  SKEIN_RETURN_IF_ERROR(
      write_durably(absl::StrCat(folder, "/", kHeldName), to_json(listing).dump(2) + "\n"));
  return sync_folder(fs::path(folder).parent_path());
}

absl::Status announce_emergency_shards(const std::string& folder) {
  SKEIN_RETURN_IF_ERROR(make_folder(folder));
  const std::string path = absl::StrCat(folder, "/", kAwaitedName);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  }
  futimens(file, nullptr);
  close(file);
  return absl::OkStatus();
}

void give_up_emergency_shards(const std::string& folder) {
  // If that fails, whoever looks waits in vain for a while.
  utimensat(AT_FDCWD, absl::StrCat(folder, "/", kHeldName).c_str(), nullptr, 0);
}

bool has_emergency_shards(const std::string& folder) {
  return !absl::IsNotFound(check_there(absl::StrCat(folder, "/", kHeldName)));
}

bool is_state_being_left(const std::string& run_folder, const std::string& run) {
  const uint64_t durable = durable_steps(run_folder, run);
  for (const auto& [name, folders] : find_folders(run_folder, /*with_unfinished=*/true)) {
    // One of a newer generation comes first, and may be of fewer steps.
    if (name.steps_done <= durable) continue;
    if (std::any_of(folders.begin(), folders.end(), is_being_written)) return true;
  }
  return false;
}

uint64_t newest_left_state(const std::string& run_folder, const std::string& run) {
  for (const auto& [name, folders] : find_folders(run_folder)) {
    for (const std::string& folder : folders) {
      const absl::StatusOr<TrainerState> state = read_trainer_state(folder);
      if (!state.ok() || may_be_of_run(*state, run)) return name.steps_done;
    }
  }
  return 0;
}

absl::StatusOr<AdoptedState> adopt_emergency_shards(const std::string& run_folder,
                                                    const plans::JobSpec& job,
                                                    const FindLoss& find_loss,
                                                    const AdoptingRun& run) {
  AdoptedState adopted;
  std::optional<uint64_t> newest;  // Read when it is asked for.
  for (const auto& [name, folders] : find_folders(run_folder)) {
    const std::optional<double> loss = find_loss(name.steps_done, name.generation);
    if (!loss) continue;
    if (!newest) newest = durable_steps(run_folder, run.id);
    if (name.steps_done <= *newest) continue;
    absl::StatusOr<std::vector<FoundFile>> found = find_shards(folders, job, run.id);
    if (absl::IsUnavailable(found.status())) {
      return absl::UnavailableError(
          absl::StrCat("workers have left state of step ", name.steps_done,
                       " that cannot be read: ", std::string(found.status().message()),
                       "; let the coordinator read it, or move it away to go on without it"));
    }
    absl::StatusOr<TrainerState> state;
    if (found.ok()) {
      state = read_trainer_state(fs::path(found->front().path).parent_path());
    } else {
      state = found.status();
    }
    if (state.ok() && state->steps_done != name.steps_done) {
      state = absl::DataLossError(
          absl::StrCat(folders.front(), " has the state of step ", state->steps_done));
    }
    if (!state.ok()) {
      adopted.passed_over.emplace_back(state.status().message());
      continue;
    }
    state->loss = *loss;
    state->run = run.id;
    state->positions = run.positions;
    state->from_digest = run.from_digest;
    const std::string partial = partial_checkpoint_path(run_folder, name.steps_done, kNoGeneration);
    SKEIN_RETURN_IF_ERROR(link_files(*found, partial));
    std::vector<SavedFile> files;
    for (FoundFile& each : *found) files.push_back(std::move(each.saved));
    absl::StatusOr<std::string> path = complete_adopted(run_folder, job, *state, files);
    if (path.ok()) {
      adopted.path = *std::move(path);
      adopted.steps_done = name.steps_done;
      return adopted;
    }
    std::error_code error;
    fs::remove_all(partial, error);
    const bool is_ours = absl::IsInternal(path.status()) || absl::IsInvalidArgument(path.status());
    if (!is_ours) return path.status();
    adopted.passed_over.push_back(
        absl::StrCat(folders.front(), ": ", std::string(path.status().message())));
  }
  return adopted;
}

}  // namespace skein::gpu
