#pragma once

#include "absl/status/statusor.h"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// Our planner: for devices of unlike speed and memory and links of unlike speed; it chooses the
/// stages, their devices, the rows of each replica, the rows of a micro-batch, the schedule and
/// recomputation.
///
///   1. candidates: partitions of several orders of the devices (`partitions_of_order`,
///      `grouped_stages`), and, if `asks_others`, the plans of all other planners, these for every
///      number of rows;
///   2. each is rated by `CandidateTiming`; the best and the most unlike are improved by
///   `local_search`;
///   3. the best of these and all plans of the others are simulated; where simulation and rating
///      differ, a further local search goes by simulation;
///   4. the fastest in simulation that fits the memory wins; `reason` names where it comes from and
///      the best of the other planners.
/// So with `asks_others` it never returns a plan that takes longer, in simulation, than that of
/// another planner. Without, they are asked only where it finds no plan of its own.
///
/// Budgets are counts of work, not time; they grow with the number of devices. Same request, same
/// plan.
/// ResourceExhausted   if nothing fits, with the message of `check_memory` for the closest plan.
absl::StatusOr<PlannedPipeline> plan_skein(const PlanRequest& request);

}  // namespace skein::plans
