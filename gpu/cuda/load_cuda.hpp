#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"

namespace skein::gpu {

struct CudaOptions {
  static constexpr int32_t kByLocalRank = -1;
  int32_t ordinal = kByLocalRank;  // Among the GPUs that the driver shows to this process.
  int32_t local_rank = 0;          // Number of this worker among those of its machine, >= 0.
  /// The type of activations and products ("bfloat16"), or of products only ("tf32", "float32").
  std::string precision = "bfloat16";
  int64_t memory_bytes_max = 0;  // 0: as much as there is.
};

/// A GPU of this machine, from the plugin libskein_cuda.so, which is loaded at run time so that
/// machines without CUDA need none of its libraries. The plugin is looked for beside the program
/// and in ../lib from there; the environment's SKEIN_CUDA_PLUGIN names another file. It stays
/// loaded until the process ends.
///
/// Unavailable, in one line that says what is missing: the plugin, a library, the driver, a GPU.
/// ResourceExhausted if the GPU, or its limit, has no room for what every device takes.
/// InvalidArgument if the precision is none of the three.
absl::StatusOr<std::unique_ptr<Device>> load_cuda_device(const CudaOptions& options);

}  // namespace skein::gpu
