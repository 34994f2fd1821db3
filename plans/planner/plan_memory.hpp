#pragma once

#include <cstdint>
#include <vector>

#include "plans/plan/plan.hpp"
#include "plans/planner/candidate_plan.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// What a worker needs at its peak; as `simulate` counts it, but from the lists alone.
struct WorkerMemory {
  WorkerId worker;
  int64_t state_bytes = 0;    // The state of all its stages.
  int64_t stash_bytes = 0;    // The most at any point of its list.
  int64_t extra_bytes = 0;    // With recomputation: the layer that is computed again.
  int64_t version_bytes = 0;  // Older versions of its stages' weights.
  int64_t total_bytes() const { return state_bytes + stash_bytes + extra_bytes + version_bytes; }
};

/// Workers ascending by id. O(actions * replicas of a rank).
/// `claims_in_flight`  > 1: stages follow `Continuous1F1B` instead of the lists, and each holds
///                     what that needs, its older versions included.
std::vector<WorkerMemory> plan_memory(const Plan& plan, const Profile& profile,
                                      int64_t claims_in_flight = 1);

/// Bytes that the worst worker lacks; 0 or less: all fit. Devices without a limit fit always.
int64_t lacking_bytes(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
                      int64_t claims_in_flight = 1);

}  // namespace skein::plans
