#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/coordinator/run_observer.hpp"

namespace skein::cli {

/// Reads back the slices of a traces/trace.json that `TraceWriter` wrote.
/// InvalidArgument   if there is no such file or it is no trace of ours.
absl::StatusOr<std::vector<actors::TimingsReport>> load_trace(const std::string& path);

}  // namespace skein::cli
