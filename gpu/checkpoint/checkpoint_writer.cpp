#include "gpu/checkpoint/checkpoint_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/checkpoint/folder_name.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/checkpoint/text_files.hpp"
#include "gpu/files/check_there.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

/// Folders that have had one name and are set aside.
constexpr int kSetAsideMax = 1000;

/// The index of the files whose name begins with `kind`.
OrderedJson make_index(const std::vector<SavedFile>& files, const std::string& kind) {
  std::map<std::string, std::string> weight_map;
  uint64_t total = 0;
  for (const SavedFile& file : files) {
    if (!file.name.starts_with(kind)) continue;
    total += file.bytes;
    for (const std::string& tensor : file.tensors) weight_map[tensor] = file.name;
  }
  return {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
}

absl::Status check_files(const plans::ModelSpec& model, const std::vector<SavedFile>& files) {
  std::set<std::string> saved;
  for (const SavedFile& file : files) {
    if (file.name.find('/') != std::string::npos || file.name.starts_with(".")) {
      return absl::InvalidArgumentError(absl::StrCat("a stage saved a file named ", file.name));
    }
    for (const std::string& tensor : file.tensors) {
      if (!saved.insert(tensor).second) {
        return absl::InternalError(absl::StrCat("tensor ", tensor, " was saved twice"));
      }
    }
  }
  for (const auto& parameter : plans::range_parameters(model, {0, plans::layer_count(model)})) {
    if (!saved.contains(parameter.name)) {
      return absl::InternalError(absl::StrCat("tensor ", parameter.name, " was not saved"));
    }
  }
  return absl::OkStatus();
}

/// Writes one small text file and adds it to the list of the checkpoint's files.
absl::Status write_listed(const std::string& folder, const std::string& name,
                          const OrderedJson& json, Listing& listing) {
  const std::string text = json.dump(2) + "\n";
  SKEIN_RETURN_IF_ERROR(write_durably(absl::StrCat(folder, "/", name), text));
  listing[name] = {text.size(), crc32c(std::as_bytes(std::span(text))), {}};
  return absl::OkStatus();
}

/// Of a file that was there, or of one beside the checkpoint, no error says that what was saved is
/// wrong: it may be readable when it is asked for again.
absl::Status as_unavailable(const absl::Status& status) {
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::UnavailableError(status.message());
}

/// Reads what a stage has saved, as far as it can be seen from here.
absl::StatusOr<ListedFile> see_file(const std::string& folder, const SavedFile& saved) {
  ListedFile listed{saved.bytes, saved.crc32c, {}};
  const std::vector<std::string> faults = find_file_faults(folder, saved.name, listed);
  if (!faults.empty()) {
    return absl::UnavailableError(absl::StrCat(
        faults.front(), " (all workers must write to the run folder that the coordinator sees)"));
  }
  const auto file = SafetensorsFile::open(absl::StrCat(folder, "/", saved.name));
  SKEIN_RETURN_IF_ERROR(as_unavailable(file.status()));
  listed.tensors = tensor_digests(**file);
  const std::set<std::string> names(saved.tensors.begin(), saved.tensors.end());
  const bool is_as_said = names.size() == listed.tensors.size() &&
                          std::all_of(names.begin(), names.end(), [&](const std::string& name) {
                            return listed.tensors.contains(name);
                          });
  if (is_as_said) return listed;
  return absl::UnavailableError(
      absl::StrCat(folder, "/", saved.name, " has other tensors than its writer has reported"));
}

/// What an attempt that was cut off has left in the folder.
void delete_unlisted(const std::string& folder, const Listing& listing) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (listing.contains(entry.path().filename().string())) continue;
    note_file_operation(entry.path(), "delete");
    fs::remove_all(entry.path(), error);
  }
}

/// Whoever asks again is told the same: rights are lacking, or all is mounted to be read only.
bool is_denied(int error) { return error == EACCES || error == EROFS; }

bool may_write_in(const std::string& folder) {
  return faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0 || !is_denied(errno);
}

/// Its caller has counted it.
absl::Status rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot rename ", from, " to ", to, ": ", strerror(errno)));
}

absl::Status point_latest(const std::string& folder, const std::string& name) {
  const std::string temporary = folder + "/latest.tmp";
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(name, temporary, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot link ", folder, "/latest: ", error.message()));
  }
  SKEIN_RETURN_IF_ERROR(count_file_operation(folder + "/latest", "rename"));
  SKEIN_RETURN_IF_ERROR(rename_path(temporary, folder + "/latest"));
  return sync_folder(folder);
}

/// A folder of a checkpoint, or of a part of one, that says it is not of `run`, or whose word on
/// that is there and cannot be read. One that is damaged is the run's own.
bool must_stay(const fs::path& folder, const std::string& run) {
  const absl::StatusOr<TrainerState> state = read_trainer_state(folder.string());
  if (state.ok()) return !may_be_of_run(*state, run);
  return !absl::IsDataLoss(state.status()) &&
         !absl::IsNotFound(check_there((folder / kStateName).string()));
}

/// Under a name that is none of a run's checkpoints, and that nothing has.
absl::Status set_aside(const fs::path& path) {
  const std::string name = absl::StrCat("set-aside.", path.filename().string());
  for (int n = 1; n <= kSetAsideMax; ++n) {
    const fs::path aside = path.parent_path() / (n == 1 ? name : absl::StrCat(name, "-", n));
    std::error_code error;
    if (fs::exists(fs::symlink_status(aside, error))) continue;
    SKEIN_RETURN_IF_ERROR(count_file_operation(aside, "rename"));
    SKEIN_RETURN_IF_ERROR(rename_path(path, aside));
    return sync_folder(path.parent_path());
  }
  return absl::UnavailableError(absl::StrCat("no name is left for ", path.string(),
                                             ", which may be of another run: move it"));
}

/// Under another name, which is deleted later if this is cut off: no half looks whole, or stays,
/// and who renames the folder meanwhile finds all of it, or nothing. What has that name and must
/// stay is set aside.
void delete_whole(const fs::path& folder, FolderName name, const std::string& run) {
  std::error_code error;
  const fs::path path = folder / to_text(name);
  if (!fs::exists(fs::symlink_status(path, error))) return;
  name.is_deleted = true;
  const fs::path deleted = folder / to_text(name);
  if (must_stay(deleted, run) && !set_aside(deleted).ok()) return;
  fs::remove_all(deleted, error);  // What one has left that died here.
  note_file_operation(path, "delete");
  fs::rename(path, deleted, error);
  note_file_operation(deleted, "delete");
  if (!error) fs::remove_all(deleted, error);
}

/// Gives a whole checkpoint of `run`, which is `partial` in `folder`, its name. One of the same
/// step can be there only from a run that was rewound, or if it is damaged: it goes, and not before
/// this one has its place, where the file system can exchange two names. One that must stay is
/// set aside.
absl::Status put_in_place(const fs::path& folder, const FolderName& partial,
                          const std::string& run) {
  const FolderName name{partial.steps_done};
  const std::string from = folder / to_text(partial);
  const std::string place = folder / to_text(name);
  if (must_stay(place, run)) SKEIN_RETURN_IF_ERROR(set_aside(place));
  SKEIN_RETURN_IF_ERROR(count_file_operation(place, "rename"));
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
    SKEIN_RETURN_IF_ERROR(sync_folder(folder));
    delete_whole(folder, partial, run);
    return absl::OkStatus();
  }
  // There is none, or names cannot be exchanged.
  if (std::error_code error; fs::exists(fs::symlink_status(place, error))) {
    delete_whole(folder, name, run);
    note_file_operation(place, "rename");
  }
  return rename_path(from, place);
}

/// What is in `folder` and has a name that the run's processes give: nobody else's is touched.
std::vector<FolderName> list_folders(const fs::path& folder) {
  std::vector<FolderName> names;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const std::optional<FolderName> name = parse_folder_name(each->path().filename().string());
    if (name) names.push_back(*name);
  }
  return names;
}

/// Deletes complete checkpoints of the run beyond the newest `keep`, of which that of `newest`
/// steps is the first, and partial ones of no more steps. One that cannot be looked at, or must
/// stay, is not counted and stays. Nobody restores from those: the coordinator assigns no plan that
/// starts with an older checkpoint while a newer one is being completed. And nobody counts what is
/// written to these: shards are reported in the order of steps, and generations end before the next
/// one begins.
void delete_old(const fs::path& folder, uint64_t newest, const std::string& run, int64_t keep) {
  std::vector<uint64_t> older;
  for (const FolderName& name : list_folders(folder)) {
    const fs::path path = folder / to_text(name);
    if (name.steps_done > newest || must_stay(path, run)) continue;
    if (!is_checkpoint(name)) {
      std::error_code error;
      note_file_operation(path, "delete");
      fs::remove_all(path, error);
    } else if (name.steps_done < newest && check_there((path / kCompleteName).string()).ok()) {
      older.push_back(name.steps_done);
    }
  }
  std::sort(older.begin(), older.end());
  const auto kept = static_cast<size_t>(keep);  // With the newest, which is none of the older ones.
  for (size_t i = 0; keep > 0 && i + kept <= older.size(); ++i) {
    delete_whole(folder, {older[i]}, run);
  }
}

}  // namespace

std::string partial_checkpoint_path(const std::string& run_folder, uint64_t steps_done,
                                    uint64_t generation) {
  return absl::StrCat(run_folder, "/checkpoint/", to_text({steps_done, generation}));
}

absl::StatusOr<std::vector<SavedFile>> write_shard(const std::string& folder, int shard,
                                                   int shard_count, const std::string& optimizer,
                                                   const std::vector<SavedParameter>& parameters) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    const std::string text = absl::StrCat("cannot make ", folder, ": ", error.message());
    return is_denied(error.value()) ? absl::PermissionDeniedError(text)
                                    : absl::UnavailableError(text);
  }
  std::vector<TensorToWrite> weights;
  std::vector<TensorToWrite> moments;
  const std::span<const char* const> suffixes = moment_suffixes(optimizer);
  for (const SavedParameter& parameter : parameters) {
    if (parameter.spec.tied_copy) continue;
    const std::string& name = parameter.spec.name;
    weights.push_back({name, parameter.spec.shape, parameter.weight});
    const std::span<const float> values[] = {parameter.moment_first, parameter.moment_second};
    for (size_t i = 0; i < suffixes.size(); ++i) {
      moments.push_back({absl::StrCat(name, suffixes[i]), parameter.spec.shape, values[i]});
    }
  }
  std::vector<SavedFile> files;
  for (const auto& [kind, tensors] : {std::pair{"model", &weights}, {"optimizer", &moments}}) {
    SavedFile file;
    file.name = shard_name(kind, shard, shard_count);
    const absl::StatusOr<WrittenFile> written =
        write_safetensors(absl::StrCat(folder, "/", file.name), *tensors);
    if (!written.ok() && !may_write_in(folder)) {
      return absl::PermissionDeniedError(written.status().message());
    }
    SKEIN_RETURN_IF_ERROR(written.status());
    file.bytes = written->bytes;
    file.crc32c = written->crc32c;
    for (const TensorToWrite& tensor : *tensors) file.tensors.push_back(tensor.name);
    files.push_back(std::move(file));
  }
  return files;
}

void delete_partial_checkpoints(const std::string& run_folder, const std::string& run,
                                uint64_t generation, uint64_t steps_done,
                                const std::set<uint64_t>& under_way) {
  const fs::path folder = fs::path(run_folder) / "checkpoint";
  for (const FolderName& name : list_folders(folder)) {
    const fs::path path = folder / to_text(name);
    const bool is_one = name.is_deleted || is_partial_checkpoint(name);
    if (!is_one || must_stay(path, run)) continue;
    std::error_code error;
    if (name.is_deleted) fs::remove_all(path, error);
    if (name.is_deleted || *name.generation > generation) continue;
    const bool may_be_completed =
        *name.generation == generation &&
        (name.steps_done > steps_done || under_way.contains(name.steps_done));
    if (!may_be_completed) delete_whole(folder, name, run);
  }
}

absl::StatusOr<std::string> complete_checkpoint(const std::string& run_folder, uint64_t generation,
                                                const plans::ModelSpec& model,
                                                const TrainerState& state,
                                                const std::vector<SavedFile>& files,
                                                int64_t keep_latest_k) {
  SKEIN_RETURN_IF_ERROR(check_files(model, files));
  const std::string partial = partial_checkpoint_path(run_folder, state.steps_done, generation);
  Listing listing;
  for (const SavedFile& file : files) {
    SKEIN_ASSIGN_OR_RETURN(listing[file.name], see_file(partial, file));
  }
  delete_unlisted(partial, listing);
  SKEIN_RETURN_IF_ERROR(write_listed(partial, kConfigName, to_config(model), listing));
  SKEIN_RETURN_IF_ERROR(
      write_listed(partial, kModelIndexName, make_index(files, "model"), listing));
  SKEIN_RETURN_IF_ERROR(
      write_listed(partial, kOptimizerIndexName, make_index(files, "optimizer"), listing));
  SKEIN_RETURN_IF_ERROR(write_listed(partial, kStateName, to_json(state), listing));
  SKEIN_RETURN_IF_ERROR(as_unavailable(copy_text_files(run_folder, partial, listing)));
  SKEIN_RETURN_IF_ERROR(
      write_durably(absl::StrCat(partial, "/", kCompleteName), to_json(listing).dump(2) + "\n"));
  const std::string folder = run_folder + "/checkpoint";
  const std::string name = to_text({state.steps_done});
  SKEIN_RETURN_IF_ERROR(put_in_place(folder, {state.steps_done, generation}, state.run));
  SKEIN_RETURN_IF_ERROR(point_latest(folder, name));
  delete_old(folder, state.steps_done, state.run, keep_latest_k);
  return absl::StrCat(folder, "/", name);
}

}  // namespace skein::gpu
