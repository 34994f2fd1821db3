#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skein::cli {

/// The trace of one of several runs on the same workers.
struct TraceSource {
  std::string label;  // Its job.
  std::string path;   // As `TraceWriter` has written it.
};

/// Puts the traces of runs whose coordinators share a clock into one: what a worker process, by the
/// label that `TraceWriter` gives it, does for each job is one below the other. Runs that have no
/// trace are left out; with fewer than two nothing is written. Unavailable if a file cannot be read
/// or written.
absl::Status write_shared_trace(const std::vector<TraceSource>& sources, const std::string& path);

}  // namespace skein::cli
