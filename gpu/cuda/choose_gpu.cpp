#include "gpu/cuda/choose_gpu.hpp"

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::gpu {

absl::StatusOr<int32_t> choose_gpu(const CudaOptions& options, int32_t visible_count) {
  SKEIN_CHECK(options.local_rank >= 0) << options.local_rank;
  if (visible_count <= 0) {
    return absl::UnavailableError("the driver shows no GPU; is CUDA_VISIBLE_DEVICES empty?");
  }
  if (options.ordinal == CudaOptions::kByLocalRank) return options.local_rank % visible_count;
  if (options.ordinal >= 0 && options.ordinal < visible_count) return options.ordinal;
  return absl::UnavailableError(
      absl::StrCat("there is no GPU ", options.ordinal, ": the driver shows ", visible_count,
                   ", counted from 0 (CUDA_VISIBLE_DEVICES hides others); name one of these"));
}

}  // namespace skein::gpu
