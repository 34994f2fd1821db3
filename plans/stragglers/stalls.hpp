#pragma once

#include <deque>
#include <map>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/profile/cluster.hpp"

namespace skein::plans {

/// Busy over expected time of each worker that took part in a step, times one factor for all.
using StepRatios = std::map<WorkerId, double>;

/// What in steps does not last: a worker stalls in a step that takes it more than one and a half
/// times as long as the median of the nearest nine (fewer at the ends). So neither a speed that is
/// known already counts, nor one that has just changed.
///
/// `steps`   in their order.
/// Returns   as many: who stalls in each, and how many times as long it takes.
std::vector<StepRatios> stalls_of(const std::deque<StepRatios>& steps);

/// The cluster in each of the steps: the device of a worker is slower by its ratio, others are as
/// they are.
///
/// `workers`  of the devices, in their order.
std::vector<ClusterSpec> disturbed_clusters(const ClusterSpec& cluster,
                                            const std::vector<WorkerId>& workers,
                                            const std::vector<StepRatios>& steps);

}  // namespace skein::plans
