#pragma once

#include "absl/status/statusor.h"
#include "gpu/device.hpp"

namespace skein::gpu {

/// Zeroed host memory, aligned to 64 bytes. ResourceExhausted with sizes if there is none.
absl::StatusOr<Buffer> allocate_host(int64_t bytes);

}  // namespace skein::gpu
