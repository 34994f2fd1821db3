#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "gpu/model/stage_model.hpp"

namespace skein::actors {

/// What pipeline replicas put together: the weights of a stage as one vector in the order of its
/// parameters, or, `with_moments`, the weights, then the first and the second moments.
enum class ModelFloats { kWeights, kWithMoments };

size_t float_count(const gpu::StageModel& model, ModelFloats which);
/// Floats of each parameter, in their order.
std::vector<size_t> parameter_floats(const gpu::StageModel& model);

/// To be called as work of the model's device, as all of these. InvalidArgument if `values` has
/// another size.
absl::Status read_floats(const gpu::StageModel& model, ModelFloats which,
                         std::vector<float>& values);
absl::Status write_floats(gpu::StageModel& model, ModelFloats which, std::span<const float> values);
/// weights += addend
absl::Status add_weights(gpu::StageModel& model, std::span<const float> addend);

}  // namespace skein::actors
