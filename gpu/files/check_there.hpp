#pragma once

#include <string>

#include "absl/status/status.h"

namespace skein::gpu {

/// Ok if a file or folder is at `path`, to which links are followed. NotFound if none is,
/// PermissionDenied if it may not be looked at, else Unavailable: with the path and the reason.
absl::Status check_there(const std::string& path);
/// The same from the error (errno) of a look that failed.
absl::Status not_there(const std::string& path, int error);

}  // namespace skein::gpu
