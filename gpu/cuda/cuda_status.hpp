#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace skein::gpu {

/// Whether the error stays: every later call of this process on the device fails with it, so the
/// worker has lost its device.
bool is_device_lost(cudaError_t error);

/// Ok for cudaSuccess. Otherwise ResourceExhausted (memory), Unavailable (no device to begin with)
/// or Internal (anything else, a lost device too), with CUDA's name and words for it. `what` says
/// what was tried.
absl::Status cuda_status(cudaError_t error, absl::string_view what);

}  // namespace skein::gpu
