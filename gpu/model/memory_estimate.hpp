#pragma once

#include "absl/status/status.h"
#include "gpu/model/stage_model.hpp"

namespace skein::gpu {

/// The error with what the stage's memory follows from by its plan, if memory is what was missing.
absl::Status with_estimate(const absl::Status& why, const StageModelOptions& options);

}  // namespace skein::gpu
