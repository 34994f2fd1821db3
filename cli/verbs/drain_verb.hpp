#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace skein::cli {

/// Asks the coordinator to let a worker leave: its state moves to the others first. `where` is as
/// for `print_status`. Returns when the coordinator has heard it. NotFound if it has no such
/// worker.
absl::Status drain_worker(const std::string& where, uint32_t worker);

}  // namespace skein::cli
