#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "plans/plan/plan.hpp"
#include "plans/schedule/schedule.hpp"

namespace skein::plans {

/// The rank of every stage, [S]: of all replicas, or of each pipeline replica once, where some have
/// cuts of their own. `plan` has as many replicas at every stage if it is one of pipeline replicas.
std::vector<std::vector<int32_t>> rank_paths(const Plan& plan);

/// Micro-batches that a worker keeps of a stage at once: the most of all that have it.
int32_t stash_peak_of(const Plan& plan, int32_t stage);
/// Workers that a micro-batch passes one after the other: of the longest pipeline replica.
size_t pipeline_length(const Plan& plan);

/// Replaces the plan's schedule and its actions. Of a pipeline replica, stages that lie side by
/// side on a worker act as one, and their actions stand side by side. InvalidArgument as
/// `make_schedule`.
absl::Status set_schedule(Plan& plan, ScheduleKind kind);

/// Each worker follows one list of actions, is in one pipeline replica if there are some, and the
/// lists can be executed. InvalidArgument with the first thing that is wrong.
absl::Status check_ranks(const Plan& plan);

}  // namespace skein::plans
