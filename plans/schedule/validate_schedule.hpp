#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "plans/schedule/action.hpp"

namespace skein::plans {

/// Checks that the lists of all ranks can be executed: every F and B (or I and W) of every stage
/// and micro-batch exactly once and on one rank, each backward behind its forward, and no deadlock.
/// InvalidArgument   naming the first offending action: its text, rank and position in the list.
/// Cost              O(actions), however large `microbatch_count` is.
absl::Status validate_schedule(const Schedule& schedule, int32_t microbatch_count);

/// What the ranks can hold.
struct StashLimits {
  std::vector<int64_t> stash_bytes;  // [S] of one micro-batch on a stage, >= 0.
  std::vector<int64_t> limit_bytes;  // [R] for all stashes of a rank, >= 0.
};

/// The same, and that no rank's stashes exceed its limit.
/// InvalidArgument     also if `limits` have other numbers of stages or ranks than the schedule.
/// ResourceExhausted   naming the first action at which they do, and what is missing.
absl::Status validate_schedule(const Schedule& schedule, int32_t microbatch_count,
                               const StashLimits& limits);

}  // namespace skein::plans
