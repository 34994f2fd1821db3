#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "plans/plan/plan.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// The layers that each worker of the plan holds.
std::map<WorkerId, std::set<int64_t>> layers_of_workers(const Plan& plan);

/// What changes for the workers when one plan follows another.
struct PlanDifference {
  /// State that workers get: weights and optimizer state of layers that they did not hold before.
  /// Gradients do not travel. A tied parameter counts with each of its two layers.
  int64_t moved_bytes = 0;
  std::vector<WorkerId> joining;  // Without a stage before, ascending.
  std::vector<WorkerId> leaving;  // Without a stage from now on, ascending.
  bool operator==(const PlanDifference&) const = default;
};

/// Both plans are for the model of `profile`. O(replicas * layers).
PlanDifference change_between(const Plan& before, const Plan& after, const Profile& profile);

}  // namespace skein::plans
