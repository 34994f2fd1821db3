#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skein::cli {

/// Where a coordinator listens by default.
inline constexpr const char* kStatusAddress = "127.0.0.1:29400";

/// Asks a running coordinator and prints its answer, as a table or as JSON. `where` is its address,
/// or a run folder, whose coordinator.address is used. Of a run that has ended, the directory
/// says at which step, and how it goes on if something is left to do: the last step is to be saved,
/// too.
/// Several are asked one after the other; the first error is returned once all have been.
/// Unavailable if nobody answers there. NotFound if it is neither an address nor a run folder.
/// PermissionDenied, Unavailable if what the folder says cannot be read.
absl::Status print_status(const std::vector<std::string>& where, bool as_json);

}  // namespace skein::cli
