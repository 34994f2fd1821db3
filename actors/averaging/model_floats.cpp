#include "actors/averaging/model_floats.hpp"

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

size_t kind_count(ModelFloats which) {
  return which == ModelFloats::kWeights ? 1 : gpu::kStateKinds.size();
}

size_t size_of(const plans::ParameterSpec& parameter) {
  return static_cast<size_t>(plans::element_count(parameter));
}

}  // namespace

size_t float_count(const gpu::StageModel& model, ModelFloats which) {
  size_t count = 0;
  for (const plans::ParameterSpec& each : model.parameters()) count += size_of(each);
  return count * kind_count(which);
}

std::vector<size_t> parameter_floats(const gpu::StageModel& model) {
  std::vector<size_t> floats;
  for (const plans::ParameterSpec& each : model.parameters()) floats.push_back(size_of(each));
  return floats;
}

absl::Status read_floats(const gpu::StageModel& model, ModelFloats which,
                         std::vector<float>& values) {
  values.resize(float_count(model, which));
  std::span<float> rest(values);
  for (size_t kind = 0; kind < kind_count(which); ++kind) {
    for (size_t i = 0; i < model.parameters().size(); ++i) {
      const size_t size = size_of(model.parameters()[i]);
      SKEIN_RETURN_IF_ERROR(model.read_state(i, gpu::kStateKinds[kind], rest.first(size)));
      rest = rest.subspan(size);
    }
  }
  return absl::OkStatus();
}

absl::Status write_floats(gpu::StageModel& model, ModelFloats which,
                          std::span<const float> values) {
  if (values.size() != float_count(model, which)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stage of ", float_count(model, which), " floats is given ", values.size()));
  }
  for (size_t kind = 0; kind < kind_count(which); ++kind) {
    for (size_t i = 0; i < model.parameters().size(); ++i) {
      const size_t size = size_of(model.parameters()[i]);
      SKEIN_RETURN_IF_ERROR(model.write_state(i, gpu::kStateKinds[kind], values.first(size)));
      values = values.subspan(size);
    }
  }
  return absl::OkStatus();
}

absl::Status add_weights(gpu::StageModel& model, std::span<const float> addend) {
  std::vector<float> values;
  SKEIN_RETURN_IF_ERROR(read_floats(model, ModelFloats::kWeights, values));
  if (values.size() != addend.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stage of ", values.size(), " floats is given ", addend.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] += addend[i];
  return write_floats(model, ModelFloats::kWeights, values);
}

}  // namespace skein::actors
