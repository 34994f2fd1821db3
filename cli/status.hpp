#pragma once

#include <string>

#include "absl/status/status.h"

namespace skein::cli {

/// Asks a running coordinator and prints its answer, as a table or as JSON. `where` is its address,
/// or a run directory, whose coordinator.address is used.
/// Unavailable if nobody answers there.
absl::Status print_status(const std::string& where, bool as_json);

}  // namespace skein::cli
