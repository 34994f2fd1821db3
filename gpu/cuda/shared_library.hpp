#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein::gpu {

/// Opens a library of CUDA's when it is first wanted: `file` ("libnccl.so.2"), from where the
/// system looks or from the toolkit's folder, or what the environment's `variable` names.
/// Unavailable in one line, which calls it `name`.
absl::StatusOr<void*> open_shared_library(const std::string& name, const std::string& file,
                                          const char* variable);

}  // namespace skein::gpu
