#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// The table of `Ops::Rotation` for positions [0, seq_len): of each, D / 2 cosines and D / 2 sines
/// of position times `plans::rotary_frequencies`, computed in float64.
std::vector<float> rotary_turns(const plans::ModelSpec& model, int64_t seq_len);

/// The same on a device. Empty for a model with learned positions. ResourceExhausted.
absl::StatusOr<Buffer> upload_rotary_turns(const plans::ModelSpec& model, int64_t seq_len,
                                           Device& device);

}  // namespace skein::gpu
