#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "plans/planner/equal_devices.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// The best of all ways to cut the model in two and give each half a share of the devices by each
/// placement policy, by DAPPLE's objective. Source: the "split" candidates of the DAPPLE planner
/// (HPGO, orchestrate.rs). InvalidArgument   beyond its budget of candidates.
absl::StatusOr<PlannedPipeline> plan_two_stage(const PlanRequest& request);

/// Its search with any objective. Empty if no candidate is possible. Cost O(L * devices)
/// evaluations of the objective.
absl::StatusOr<std::optional<Found>> best_two_stage(
    EqualDevices& ground, const EqualDevices::Attempt& attempt,
    const std::function<double(const CandidatePlan&)>& objective);

}  // namespace skein::plans
