#include <algorithm>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/checkpoint/json_field.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/data/token_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Indexes of a thousand shards have a few MB.
constexpr uint64_t kJsonBytesMax = 64 << 20;

absl::StatusOr<Json> read_json(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  if (file->bytes() > kJsonBytesMax) {
    return absl::DataLossError(absl::StrCat(path, " has ", file->bytes(), " bytes"));
  }
  const auto* text = reinterpret_cast<const char*>(file->data());
  Json json = Json::parse(text, text + file->bytes(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError(absl::StrCat(path, " is no JSON object; it is damaged"));
  }
  return json;
}

absl::StatusOr<plans::ModelSpec> read_model(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kConfigName);
  SKEIN_ASSIGN_OR_RETURN(const Json json, read_json(path));
  return from_config(json, path);
}

absl::StatusOr<TrainerState> read_state(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kStateName);
  SKEIN_ASSIGN_OR_RETURN(const Json json, read_json(path));
  TrainerState state;
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "steps_done", state.steps_done));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "samples_done", state.samples_done));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "seq_len", state.seq_len));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "seed", state.seed));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "data_bytes", state.data_bytes));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "data_digest", state.data_digest));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "loss", state.loss));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "plan", state.plan));
  return state;
}

/// The folder that `path` means: itself, or the newest complete one of a run directory.
absl::StatusOr<std::string> find_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::path(path) / kCompleteName, error)) return path;
  std::string newest;
  const fs::path run = fs::path(path) / "checkpoint";
  for (const auto& entry :
       fs::directory_iterator(fs::is_directory(run, error) ? run : fs::path(path), error)) {
    const std::string name = entry.path().filename().string();
    const bool is_complete = name.starts_with("step-") && !name.ends_with(".tmp") &&
                             fs::exists(entry.path() / kCompleteName, error);
    if (is_complete) newest = std::max(newest, entry.path().string());
  }
  if (!newest.empty()) return newest;
  return absl::NotFoundError(
      absl::StrCat("no complete checkpoint in ", path,
                   " (a complete one has a file COMPLETE); give a checkpoint folder or a run "
                   "directory"));
}

/// What shapes do not always tell apart.
std::string choices_of(const plans::ModelSpec& model) {
  std::string text = absl::StrCat(model.norm, ", ", model.mlp, " and ",
                                  model.position_embedding_type, " positions");
  if (plans::has_rotary(model)) absl::StrAppend(&text, " of base ", model.rope_theta);
  return text;
}

class ShardedReader final : public CheckpointReader {
 public:
  absl::Status load(const std::string& path, bool verify_digests) {
    SKEIN_ASSIGN_OR_RETURN(folder_, find_folder(path));
    SKEIN_RETURN_IF_ERROR(check_listed(verify_digests));
    SKEIN_ASSIGN_OR_RETURN(model_, read_model(folder_));
    SKEIN_ASSIGN_OR_RETURN(state_, read_state(folder_));
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
    const auto file = file_of_.find(name);
    if (file == file_of_.end()) {
      return absl::NotFoundError(absl::StrCat("checkpoint ", folder_, " has no tensor ", name));
    }
    return files_.at(file->second)->read(name, out);
  }
  bool has(const std::string& name) const override { return file_of_.contains(name); }

 private:
  const TensorEntry* find(const std::string& name) const {
    const auto file = file_of_.find(name);
    return file == file_of_.end() ? nullptr : &files_.at(file->second)->tensors().at(name);
  }

  /// Compares every file that COMPLETE lists: its size, and on demand its contents.
  absl::Status check_listed(bool verify_digests) const {
    const std::string path = absl::StrCat(folder_, "/", kCompleteName);
    SKEIN_ASSIGN_OR_RETURN(const Json json, read_json(path));
    if (!json.contains("files") || !json["files"].is_object()) {
      return absl::DataLossError(absl::StrCat(path, " lists no files"));
    }
    for (const auto& [name, listed] : json["files"].items()) {
      uint64_t bytes = 0;
      uint32_t digest = 0;
      if (!listed.is_object() || name.find('/') != std::string::npos) {
        return absl::DataLossError(absl::StrCat(path, " has a broken entry for ", name));
      }
      SKEIN_RETURN_IF_ERROR(take_field(listed, path, "bytes", bytes));
      SKEIN_RETURN_IF_ERROR(take_field(listed, path, "crc32c", digest));
      const std::string file_path = absl::StrCat(folder_, "/", name);
      auto file = MappedFile::open(file_path);
      if (!file.ok()) return absl::DataLossError(std::string(file.status().message()));
      if ((*file)->bytes() != bytes) {
        return absl::DataLossError(absl::StrCat(file_path, " has ", (*file)->bytes(),
                                                " bytes but was written with ", bytes,
                                                "; it is truncated or was changed"));
      }
      if (verify_digests && crc32c({(*file)->data(), (*file)->bytes()}) != digest) {
        return absl::DataLossError(
            absl::StrCat(file_path, " is damaged: its CRC-32C is not the one it was written with"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status open_index(const char* index_name) {
    const std::string path = absl::StrCat(folder_, "/", index_name);
    SKEIN_ASSIGN_OR_RETURN(const Json json, read_json(path));
    if (!json.contains("weight_map") || !json["weight_map"].is_object()) {
      return absl::DataLossError(absl::StrCat(path, " has no weight_map"));
    }
    for (const auto& [tensor, file] : json["weight_map"].items()) {
      const bool is_name =
          file.is_string() && file.get<std::string>().find('/') == std::string::npos;
      if (!is_name) return absl::DataLossError(absl::StrCat(path, ": no file for ", tensor));
      const std::string name = file.get<std::string>();
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
  plans::ModelSpec model_;
  TrainerState state_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::string> file_of_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::open(const std::string& path,
                                                                         bool verify_digests) {
  auto reader = std::make_unique<ShardedReader>();
  SKEIN_RETURN_IF_ERROR(reader->load(path, verify_digests));
  return std::unique_ptr<CheckpointReader>(std::move(reader));
}

}  // namespace skein::gpu
