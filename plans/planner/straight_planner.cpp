#include "plans/planner/straight_planner.hpp"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "plans/planner/stage_cuts.hpp"

namespace skein::plans {

CandidatePlan straight_candidate(EqualDevices& ground, const EqualDevices::Attempt& attempt) {
  const int64_t stages = std::min(ground.layer_count(), ground.device_count());
  const std::vector<double> speeds(static_cast<size_t>(stages), 1.0);
  std::vector<std::vector<int32_t>> devices;
  for (int32_t device : ground.devices()) {
    if (static_cast<int64_t>(devices.size()) < stages) devices.push_back({device});
  }
  return ground.candidate(balanced_cuts(ground.model().sums(), attempt.rows, speeds),
                          std::move(devices), attempt);
}

absl::StatusOr<PlannedPipeline> plan_straight(const PlanRequest& request) {
  auto search = [](EqualDevices& ground,
                   const EqualDevices::Attempt& attempt) -> absl::StatusOr<std::optional<Found>> {
    CandidatePlan candidate = straight_candidate(ground, attempt);
    const double length_us =
        dapple_length(ground.dapple_stages(candidate), ground.microbatch_count(attempt)).total_us();
    if (!ground.is_possible(candidate, attempt, length_us)) return std::nullopt;
    return Found{candidate, length_us,
                 absl::StrCat(candidate.stage_count(), " stages of one device")};
  };
  return plan_with_equal_devices(request, search);
}

}  // namespace skein::plans
