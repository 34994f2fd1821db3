#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "plans/plan/plan.hpp"

namespace skein::cli {

/// The plan in a file that `skein plan --out` or a run wrote (plan.txt).
/// InvalidArgument   with the path, and the line of the first thing that is not understood.
absl::StatusOr<plans::Plan> read_plan(const std::string& path);

}  // namespace skein::cli
