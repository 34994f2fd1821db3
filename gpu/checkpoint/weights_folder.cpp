#include "gpu/checkpoint/weights_folder.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "gpu/files/check_there.hpp"
#include "gpu/files/sha256.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/spelled_out.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;

constexpr char kOneFileName[] = "model.safetensors";
/// No plan has this generation.
constexpr uint64_t kImportGeneration = 0;

/// What GPT-2's and Llama's models put before all names but the head's, and their bodies alone do
/// not.
constexpr const char* kPrefixes[] = {"transformer.", "model."};

std::string without_prefix(const std::string& name) {
  for (const std::string prefix : kPrefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

/// Older files have masks and wavelengths, which are no weights.
bool is_computed(const std::string& tensor) {
  return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias") ||
         tensor.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightsFolder>> WeightsFolder::open(const std::string& folder) {
  auto weights = std::make_unique<WeightsFolder>();
  weights->folder_ = folder;
  int64_t learned = 0;
  if (std::error_code error; fs::exists(absl::StrCat(folder, "/", kCompleteName), error)) {
    const std::vector<std::string> faults = find_faults(folder);
    if (!faults.empty()) return absl::DataLossError(faults.front());
    SKEIN_ASSIGN_OR_RETURN(const TrainerState state, read_trainer_state(folder));
    learned = learned_positions(state);
  }
  SKEIN_ASSIGN_OR_RETURN(weights->model_, read_model_config(folder));
  const int64_t all = weights->model_.positions;
  weights->positions_ = learned > 0 ? std::min(learned, all) : all;
  SKEIN_RETURN_IF_ERROR(weights->open_files());
  SKEIN_RETURN_IF_ERROR(weights->find_parameters());
  SKEIN_RETURN_IF_ERROR(weights->check_rest());
  return weights;
}

absl::Status WeightsFolder::check_use(const plans::ModelSpec& model) const {
  plans::ModelSpec one = plans::spelled_out(model), other = plans::spelled_out(model_);
  for (plans::ModelSpec* each : {&one, &other}) {
    each->name = each->flavor = "";
    each->init_std = 0;
  }
  if (one == other) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the job's [model] is another one than that of ", folder_,
                   "/config.json; leave its keys out, they are taken from there"));
}

/// As transformers, which does not look at an index that an earlier model has left.
absl::Status WeightsFolder::open_files() {
  const std::string index = absl::StrCat(folder_, "/", kModelIndexName);
  std::error_code error;
  const bool is_one_file = fs::exists(absl::StrCat(folder_, "/", kOneFileName), error);
  if (is_one_file || !fs::exists(index, error)) return open_file(kOneFileName);
  SKEIN_ASSIGN_OR_RETURN(const auto weight_map, read_weight_map(index));
  if (weight_map.empty()) return absl::DataLossError(absl::StrCat(index, " has no weight_map"));
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  for (const std::string& name : names) SKEIN_RETURN_IF_ERROR(open_file(name));
  for (const auto& [tensor, file] : weight_map) {
    const auto found = file_of_.find(tensor);
    if (found != file_of_.end() && found->second == file) continue;
    return absl::DataLossError(
        absl::StrCat(index, " places ", tensor, " in ", file, ", which does not have it"));
  }
  return absl::OkStatus();
}

absl::Status WeightsFolder::open_file(const std::string& name) {
  const std::string path = absl::StrCat(folder_, "/", name);
  SKEIN_RETURN_IF_ERROR(check_there(path));
  SKEIN_ASSIGN_OR_RETURN(files_[name], SafetensorsFile::open(path));
  for (const auto& [tensor, entry] : files_.at(name)->tensors()) {
    if (file_of_.emplace(tensor, name).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tensor ", tensor, " is in ", file_of_.at(tensor), ", too"));
  }
  return absl::OkStatus();
}

absl::Status WeightsFolder::find_parameters() {
  const plans::LayerRange all = {0, plans::layer_count(model_)};
  for (const plans::ParameterSpec& parameter : plans::range_parameters(model_, all)) {
    if (parameter.tied_copy) continue;
    auto found = file_of_.find(parameter.name);
    if (found == file_of_.end()) found = file_of_.find(without_prefix(parameter.name));
    const std::string expected = absl::StrJoin(parameter.shape, ", ");
    if (found == file_of_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder_, " has no tensor ", parameter.name, " [", expected, "]"));
    }
    const TensorEntry& entry = files_.at(found->second)->tensors().at(found->first);
    const std::string where = absl::StrCat(folder_, "/", found->second, ": tensor ", found->first);
    if (entry.shape != parameter.shape) {
      return absl::InvalidArgumentError(absl::StrCat(where, " has shape [",
                                                     absl::StrJoin(entry.shape, ", "),
                                                     "], by config.json it is [", expected, "]"));
    }
    if (entry.type == TensorType::kOther) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has no type that is read; these are F32, F16 and BF16"));
    }
    places_[parameter.name] = {found->second, found->first};
  }
  return absl::OkStatus();
}

absl::Status WeightsFolder::check_rest() const {
  std::set<std::string> known;
  for (const auto& [parameter, place] : places_) known.insert(place.tensor);
  for (const auto& [tensor, file] : file_of_) {
    const bool is_tied_head = model_.tied_head && tensor == "lm_head.weight";
    if (known.contains(tensor) || is_computed(tensor) || is_tied_head) continue;
    return absl::InvalidArgumentError(absl::StrCat(folder_, "/", file, ": tensor ", tensor,
                                                   " is none of the model in config.json"));
  }
  return absl::OkStatus();
}

absl::Status WeightsFolder::read(const std::string& name, std::span<float> out) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    return absl::NotFoundError(absl::StrCat(folder_, " has no parameter ", name));
  }
  return files_.at(place->second.file)->read(place->second.tensor, out);
}

absl::Status WeightsFolder::check_finite() const {
  std::vector<float> values;
  for (const auto& each : plans::range_parameters(model_, {0, plans::layer_count(model_)})) {
    if (each.tied_copy) continue;
    values.resize(static_cast<size_t>(plans::element_count(each)));
    SKEIN_RETURN_IF_ERROR(read(each.name, values));
    SKEIN_RETURN_IF_ERROR(check_finite_values(folder_, each.name, values));
  }
  return absl::OkStatus();
}

absl::Status check_finite_values(const std::string& folder, const std::string& tensor,
                                 std::span<const float> values) {
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      folder, ": tensor ", tensor, " has ", *bad, " at ", bad - values.begin(),
      "; weights that are no finite numbers are of no use, take others, as those of an earlier "
      "checkpoint"));
}

absl::StatusOr<std::string> import_weights(const WeightsFolder& weights, const plans::JobSpec& job,
                                           TrainerState state, const std::string& run_folder) {
  SKEIN_RETURN_IF_ERROR(weights.check_use(job.model));
  const auto layers = static_cast<int>(plans::layer_count(job.model));
  const std::string partial = partial_checkpoint_path(run_folder, 0, kImportGeneration);
  std::vector<SavedFile> files;
  std::string digests;
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<std::vector<float>> values;
    std::vector<SavedParameter> parameters;
    std::vector<float> zeros;
    for (const auto& each : plans::layer_parameters(job.model, layer, {0, layers})) {
      if (each.tied_copy) continue;
      values.emplace_back(plans::element_count(each));
      SKEIN_RETURN_IF_ERROR(weights.read(each.name, values.back()));
      absl::StrAppend(&digests, each.name, " ", sha256(std::as_bytes(std::span(values.back()))),
                      "\n");
      zeros.resize(std::max(zeros.size(), values.back().size()));
      parameters.push_back({each, {}, {}, {}});
    }
    for (size_t n = 0; n < parameters.size(); ++n) {
      const auto none = std::span<const float>(zeros).first(values[n].size());
      parameters[n] = {parameters[n].spec, values[n], none, none};
    }
    SKEIN_ASSIGN_OR_RETURN(const std::vector<SavedFile> written,
                           write_shard(partial, layer, layers, job.optimizer.name, parameters));
    files.insert(files.end(), written.begin(), written.end());
  }
  state.from_digest = sha256(std::as_bytes(std::span(digests)));
  return complete_checkpoint(run_folder, kImportGeneration, job.model, state, files,
                             job.checkpoint.keep_latest_k);
}

}  // namespace skein::gpu
