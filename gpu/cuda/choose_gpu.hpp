#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "gpu/cuda/load_cuda.hpp"

namespace skein::gpu {

/// Which of `visible_count` GPUs a worker takes: the one that is named, or the one that its local
/// rank comes to when the workers of a machine are dealt over its GPUs in turn. Of what
/// CUDA_VISIBLE_DEVICES hides from the process the driver does not speak, so it is not counted.
///
/// Unavailable if there is none, or not so many.
absl::StatusOr<int32_t> choose_gpu(const CudaOptions& options, int32_t visible_count);

}  // namespace skein::gpu
