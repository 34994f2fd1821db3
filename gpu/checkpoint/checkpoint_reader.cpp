#include "gpu/checkpoint/checkpoint_reader.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/checkpoint/folder_name.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/files/check_there.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;

/// What shapes do not always tell apart.
std::string choices_of(const plans::ModelSpec& model) {
  std::string text = absl::StrCat(model.norm, ", ", model.mlp, " and ",
                                  model.position_embedding_type, " positions");
  if (plans::has_rotary(model)) {
    absl::StrAppend(&text, " of base ", model.rope_theta, ", scaling ", model.rope_type);
    if (model.rope_type != "default") absl::StrAppend(&text, " by ", model.rope_factor);
    if (model.rope_type == "llama3") {
      absl::StrAppend(&text, " (", model.rope_low_freq_factor, " to ", model.rope_high_freq_factor,
                      " waves in ", model.rope_original_positions, ")");
    }
  }
  if (model.has_bias) return absl::StrCat(text, ", and biases");
  return model.has_qkv_bias ? absl::StrCat(text, ", and biases of q, k and v") : text;
}

std::string heads_of(const plans::ModelSpec& model) {
  std::string text = absl::StrCat(model.heads, " heads");
  const int64_t keys = plans::kv_heads(model);
  if (keys != model.heads) absl::StrAppend(&text, " (", keys, " of keys)");
  if (model.head_size > 0) absl::StrAppend(&text, " of ", model.head_size, " channels");
  return text;
}

/// The folder of a run's checkpoints; without one, `path` itself. One that is there and cannot be
/// read (a link that leads nowhere) is an error: what it has is not lost.
absl::StatusOr<fs::path> folder_of_checkpoints(const fs::path& path) {
  const fs::path folder = path / "checkpoint";
  std::error_code error;
  const fs::file_status there = fs::symlink_status(folder, error);
  if (there.type() == fs::file_type::not_found) return path;
  if (!fs::status_known(there)) return not_there(folder.string(), error.value());
  if (fs::directory_iterator(folder, error); !error) return folder;
  absl::Status why = not_there(folder.string(), error.value());
  if (!absl::IsNotFound(why)) return why;
  std::error_code unused;
  const std::string target = fs::read_symlink(folder, unused).string();
  return absl::UnavailableError(absl::StrCat(
      "cannot read ", folder.string(), target.empty() ? "" : absl::StrCat(", a link to ", target),
      ": ", error.message(), "; put it right, or remove it to go on without its checkpoints"));
}

class ShardedReader final : public CheckpointReader {
 public:
  absl::Status load(const std::string& path) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> folders, complete_checkpoints(path));
    folder_ = folders.front();
    SKEIN_RETURN_IF_ERROR(check_listed());
    SKEIN_ASSIGN_OR_RETURN(model_, read_model_config(folder_));
    SKEIN_ASSIGN_OR_RETURN(state_, read_trainer_state(folder_));
    SKEIN_RETURN_IF_ERROR(open_index(kModelIndexName));
    return open_index(kOptimizerIndexName);
  }

  const std::string& folder() const override { return folder_; }
  const TrainerState& trainer_state() const override { return state_; }
  const plans::ModelSpec& model() const override { return model_; }

  absl::Status check_model(const plans::ModelSpec& model) const override {
    if (choices_of(model) != choices_of(model_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint ", folder_, " is of a model with ", choices_of(model_),
                       " but the job's [model] has ", choices_of(model)));
    }
    const bool same_heads =
        model.heads == model_.heads && plans::kv_heads(model) == plans::kv_heads(model_) &&
        (model.channels != model_.channels || plans::head_size(model) == plans::head_size(model_));
    if (model.layers != model_.layers || !same_heads) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint ", folder_, " is of a model of ", model_.layers, " blocks with ",
                       heads_of(model_), ", but the job's [model] has ", model.layers, " with ",
                       heads_of(model)));
    }
    for (const auto& parameter : plans::range_parameters(model, {0, plans::layer_count(model)})) {
      const TensorEntry* entry = find(parameter.name);
      const std::string expected = absl::StrJoin(parameter.shape, ", ");
      if (entry == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("checkpoint ", folder_, " has no tensor ", parameter.name, " [", expected,
                         "]: it is of another model than the job's [model]"));
      }
      if (entry->shape != parameter.shape) {
        return absl::InvalidArgumentError(absl::StrCat(
            "checkpoint ", folder_, ": tensor ", parameter.name, " has shape [",
            absl::StrJoin(entry->shape, ", "), "] but the job's model needs [", expected, "]"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status read(const std::string& name, std::span<float> out) const override {
    const auto found = file_of_.find(name);
    if (found == file_of_.end()) {
      return absl::NotFoundError(absl::StrCat("checkpoint ", folder_, " has no tensor ", name));
    }
    const SafetensorsFile& file = *files_.at(found->second);
    SKEIN_RETURN_IF_ERROR(file.read(name, out));
    const auto& digests = listing_.at(found->second).tensors;
    const auto written = digests.find(name);
    if (written == digests.end()) return absl::OkStatus();  // Its whole file was read at the start.
    const TensorEntry& entry = file.tensors().at(name);
    // The copy is what is used: it is compared, unless it was converted.
    const auto bytes = entry.type == TensorType::kF32 ? std::as_bytes(out) : file.bytes_of(entry);
    if (crc32c(bytes) == written->second) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(folder_, "/", found->second, ": tensor ", name,
                                            " is damaged: its CRC-32C is not the one it was "
                                            "written with"));
  }
  bool has(const std::string& name) const override { return file_of_.contains(name); }

  std::vector<std::string> find_shape_faults() const override {
    const auto parameters = plans::range_parameters(model_, {0, plans::layer_count(model_)});
    const bool is_sgd = !parameters.empty() &&
                        has(absl::StrCat(parameters.front().name, moment_suffixes("sgd").front()));
    const auto shapes = tensor_shapes(model_, is_sgd ? "sgd" : "adamw");
    std::vector<std::string> faults;
    for (const auto& [name, shape] : shapes) {
      const TensorEntry* entry = find(name);
      const std::string expected = absl::StrJoin(shape, ", ");
      if (entry == nullptr) {
        faults.push_back(absl::StrCat(folder_, " has no tensor ", name, " [", expected, "]"));
      } else if (entry->shape != shape) {
        faults.push_back(absl::StrCat(folder_, "/", file_of_.at(name), ": tensor ", name,
                                      " has shape [", absl::StrJoin(entry->shape, ", "),
                                      "], by config.json it is [", expected, "]"));
      }
    }
    for (const auto& [name, file] : file_of_) {
      if (shapes.contains(name)) continue;
      faults.push_back(absl::StrCat(folder_, "/", file, ": tensor ", name,
                                    " is none of the model in config.json"));
    }
    return faults;
  }

 private:
  const TensorEntry* find(const std::string& name) const {
    const auto file = file_of_.find(name);
    return file == file_of_.end() ? nullptr : &files_.at(file->second)->tensors().at(name);
  }

  /// Every file that COMPLETE lists is there in its size. The contents of tensors are compared when
  /// they are read, those of all other files now.
  absl::Status check_listed() {
    SKEIN_ASSIGN_OR_RETURN(listing_, read_listing(folder_));
    for (const auto& [name, listed] : listing_) {
      const std::string path = absl::StrCat(folder_, "/", name);
      std::vector<std::string> faults;
      if (listed.tensors.empty()) {
        faults = find_file_faults(folder_, name, listed);
      } else {
        absl::Status there = check_there(path);
        if (!there.ok() && !absl::IsNotFound(there)) return there;
        std::error_code error;
        const bool is_whole = there.ok() && fs::file_size(path, error) == listed.bytes && !error;
        const char* what = there.ok() ? " is truncated or was changed" : " is not there";
        if (is_whole) continue;
        faults.push_back(
            absl::StrCat(path, what, ": it was written with ", listed.bytes, " bytes"));
      }
      if (!faults.empty()) return absl::DataLossError(faults.front());
    }
    return absl::OkStatus();
  }

  absl::Status open_index(const char* index_name) {
    const std::string path = absl::StrCat(folder_, "/", index_name);
    SKEIN_ASSIGN_OR_RETURN(const auto weight_map, read_weight_map(path));
    for (const auto& [tensor, name] : weight_map) {
      if (!listing_.contains(name)) {
        return absl::DataLossError(
            absl::StrCat(path, " names ", name, ", which COMPLETE does not"));
      }
      if (!files_.contains(name)) {
        SKEIN_ASSIGN_OR_RETURN(files_[name],
                               SafetensorsFile::open(absl::StrCat(folder_, "/", name)));
      }
      if (!files_.at(name)->tensors().contains(tensor)) {
        return absl::DataLossError(
            absl::StrCat(path, " places ", tensor, " in ", name, ", which does not have it"));
      }
      file_of_[tensor] = name;
    }
    return absl::OkStatus();
  }

  std::string folder_;
  Listing listing_;
  plans::ModelSpec model_;
  TrainerState state_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::string> file_of_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> complete_checkpoints(const std::string& path) {
  absl::Status unseen = check_there((fs::path(path) / kCompleteName).string());
  if (unseen.ok()) return std::vector<std::string>{path};
  std::vector<std::pair<uint64_t, std::string>> found;  // By steps.
  bool is_any_complete = false;
  std::error_code error;
  SKEIN_ASSIGN_OR_RETURN(const fs::path parent, folder_of_checkpoints(path));
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const auto name = parse_folder_name(entry.path().filename().string());
    if (!name || !is_checkpoint(*name)) continue;
    const absl::Status complete = check_there((entry.path() / kCompleteName).string());
    if (absl::IsNotFound(complete)) continue;
    found.emplace_back(name->steps_done, entry.path().string());
    is_any_complete = is_any_complete || complete.ok();
    if (!complete.ok()) unseen = complete;
  }
  if (absl::IsNotFound(unseen) && error) unseen = not_there(parent.string(), error.value());
  std::sort(found.rbegin(), found.rend());
  if (is_any_complete) {
    std::vector<std::string> folders;
    for (auto& [steps_done, folder] : found) folders.push_back(std::move(folder));
    return folders;
  }
  if (!absl::IsNotFound(unseen)) return unseen;
  const fs::file_status there = fs::status(path, error);
  const char* why = !fs::exists(there)         ? ", which is not there"
                    : !fs::is_directory(there) ? ", which is no folder"
                                               : " (a complete one has a file COMPLETE)";
  return absl::NotFoundError(absl::StrCat("no complete checkpoint in ", path, why,
                                          "; give a checkpoint folder or a run folder"));
}

absl::StatusOr<OwnCheckpoints> own_checkpoints(const std::string& path, const std::string& run) {
  SKEIN_ASSIGN_OR_RETURN(std::vector<std::string> folders, complete_checkpoints(path));
  OwnCheckpoints own;
  for (std::string& folder : folders) {
    const absl::StatusOr<TrainerState> state = read_trainer_state(folder);
    // What is damaged is told of by whoever reads the whole.
    if (!state.ok() || may_be_of_run(*state, run)) {
      own.folders.push_back(std::move(folder));
    } else {
      own.passed_over.push_back(
          absl::StrCat("checkpoint ", folder, " is of run ", state->run, ", and this is ", run));
    }
  }
  if (!own.folders.empty()) return own;
  return absl::InvalidArgumentError(absl::StrCat(
      own.passed_over.front(), "; ", path,
      " has none of this run: move it away to go on without, or begin a run with it by "
      "checkpoint.initial_load_path"));
}

absl::StatusOr<RunsHere> runs_of_checkpoints(const std::string& run_folder) {
  RunsHere here;
  std::error_code error;
  SKEIN_ASSIGN_OR_RETURN(const fs::path folder, folder_of_checkpoints(run_folder));
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const std::string path = each->path().string();
    // What was set aside was not known to be the run's, and a folder with a name of its own is the
    // user's.
    const auto name = parse_folder_name(each->path().filename().string());
    if (!name) continue;
    const bool is_missing = absl::IsNotFound(check_there(absl::StrCat(path, "/", kStateName)));
    const absl::StatusOr<TrainerState> state = read_trainer_state(path);
    if (!is_missing && !state.ok() && !absl::IsDataLoss(state.status())) return state.status();
    const bool is_complete =
        is_checkpoint(*name) && check_there(absl::StrCat(path, "/", kCompleteName)).ok();
    const bool is_named = state.ok() && !state->run.empty();
    if (is_named) here.runs.insert(state->run);
    if (is_complete && is_named) here.is_any_named = true;
    if (is_complete && !is_named) here.is_any_unnamed = true;
  }
  const absl::Status seen = error ? not_there(folder.string(), error.value()) : absl::OkStatus();
  if (!seen.ok() && !absl::IsNotFound(seen)) return seen;
  return here;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::open(const std::string& path) {
  auto reader = std::make_unique<ShardedReader>();
  SKEIN_RETURN_IF_ERROR(reader->load(path));
  return std::unique_ptr<CheckpointReader>(std::move(reader));
}

std::vector<std::string> find_faults(const std::string& folder) {
  const absl::StatusOr<Listing> listing = read_listing(folder);
  if (!listing.ok()) return {std::string(listing.status().message())};
  std::vector<std::string> faults;
  for (const auto& [name, listed] : *listing) {
    for (std::string& fault : find_file_faults(folder, name, listed)) {
      faults.push_back(std::move(fault));
    }
  }
  if (!faults.empty()) return faults;
  const auto reader = CheckpointReader::open(folder);
  if (!reader.ok()) return {std::string(reader.status().message())};
  return (*reader)->find_shape_faults();
}

absl::StatusOr<WholeCheckpoint> newest_whole_checkpoint(const std::string& path,
                                                        const std::string& run,
                                                        uint64_t steps_max) {
  SKEIN_ASSIGN_OR_RETURN(const OwnCheckpoints own, own_checkpoints(path, run));
  WholeCheckpoint found;
  for (const std::string& folder : own.folders) {
    const std::vector<std::string> faults = find_faults(folder);
    if (!faults.empty()) {
      const size_t more = faults.size() - 1;
      found.faults.push_back(
          absl::StrCat(faults.front(), more > 0 ? absl::StrCat(" (and ", more, " more)") : ""));
      continue;
    }
    SKEIN_ASSIGN_OR_RETURN(auto reader, CheckpointReader::open(folder));
    if (reader->trainer_state().steps_done > steps_max) continue;
    found.reader = std::move(reader);
    return found;
  }
  return found;
}

uint64_t durable_steps(const std::string& run_folder, const std::string& run) {
  const auto found = newest_whole_checkpoint(run_folder, run);
  return found.ok() && found->reader ? found->reader->trainer_state().steps_done : 0;
}

}  // namespace skein::gpu
