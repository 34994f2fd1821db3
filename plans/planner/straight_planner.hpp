#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "plans/planner/equal_devices.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// One device per stage, in the order of the hosts; the slowest stage is as short as possible. With
/// fewer layers than devices the last devices stay unused. Source: the "straight" candidates of the
/// DAPPLE planner (HPGO, orchestrate.rs).
absl::StatusOr<PlannedPipeline> plan_straight(const PlanRequest& request);

/// Its candidate plan, for planners that have it among their candidates.
CandidatePlan straight_candidate(EqualDevices& ground, const EqualDevices::Attempt& attempt);

}  // namespace skein::plans
