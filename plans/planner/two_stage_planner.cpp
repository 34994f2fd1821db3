#include "plans/planner/two_stage_planner.hpp"

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

/// Candidates times devices: below a tenth of a second.
constexpr int64_t kBudget = 1'000'000;

}  // namespace

absl::StatusOr<std::optional<Found>> best_two_stage(
    EqualDevices& ground, const EqualDevices::Attempt& attempt,
    const std::function<double(const CandidatePlan&)>& objective) {
  const int64_t L = ground.layer_count();
  const int64_t P = ground.device_count();
  if (3 * L * P * P > kBudget) {
    return absl::InvalidArgumentError(absl::StrCat("cutting ", L, " layers in two over ", P,
                                                   " devices is beyond its budget of ", kBudget,
                                                   " placed devices; use the planner \"skein\""));
  }
  std::optional<Found> best;
  for (const PlacementPolicy policy : kPlacementPolicies) {
    for (int64_t count = 1; count < P; ++count) {
      if (count > attempt.rows || P - count > attempt.rows) continue;
      Occupancy used(ground.by_host().size(), 0);
      const std::vector<int32_t> first =
          place_devices(ground.by_host(), policy, static_cast<int32_t>(count), used);
      const std::vector<int32_t> second = free_devices(ground.by_host(), used);
      for (int64_t cut = 1; cut < L; ++cut) {
        CandidatePlan candidate = ground.candidate({0, cut, L}, {first, second}, attempt);
        const double length_us = objective(candidate);
        if (best && length_us >= best->objective_us) continue;
        if (!ground.is_possible(candidate, attempt, length_us)) continue;
        best = Found{candidate, length_us,
                     absl::StrCat(count, ":", P - count, " devices, cut at layer ", cut)};
      }
    }
  }
  return best;
}

absl::StatusOr<PlannedPipeline> plan_two_stage(const PlanRequest& request) {
  auto search = [](EqualDevices& ground, const EqualDevices::Attempt& attempt) {
    return best_two_stage(ground, attempt, [&](const CandidatePlan& candidate) {
      return dapple_length(ground.dapple_stages(candidate), ground.microbatch_count(attempt))
          .total_us();
    });
  };
  return plan_with_equal_devices(request, search);
}

}  // namespace skein::plans
