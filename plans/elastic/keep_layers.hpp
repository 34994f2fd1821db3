#pragma once

#include "plans/plan/plan.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// Devices of one host with so unlike speeds at most may take each other's place.
inline constexpr double kSpeedsAlike = 1.1;

/// The plan with its workers renamed so that less state has to travel from `current`: where devices
/// are alike (host, memory, about the same speed), each place of `plan` goes to the one that holds
/// most of the place's layers already, the largest overlap first; on a tie the earlier place, then
/// the worker that the plan has there, then the lower worker. Devices that `plan` does not use take
/// part. A planner does not know who holds what, and equal devices come in any order.
///
/// Worker w of both plans is `cluster.devices[w - 1]`. Greedy, so not always the least
/// bytes, but never more than with `plan` as it is.
/// Cost: O(places * devices * (layers + log)).
Plan with_layers_kept(const Plan& plan, const Plan& current, const Profile& profile,
                      const ClusterSpec& cluster);

}  // namespace skein::plans
