#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plans/planner/candidate_cost.hpp"

namespace skein::plans {

/// Orders of all devices in which neighbours suit each other as replicas of a stage or as stages
/// next to each other; partitions of such an order are where the search begins. Without repeats:
///   as given (host by host); fastest first; slowest first; most memory first; hosts chained by
///   their fastest paths, each host's devices fastest first, and back; one device of each host in
///   turn; all orders of at most four devices.
std::vector<std::vector<int32_t>> device_orders(CostModel& model);

/// Moves the ends of runs of an order to where its next host begins, if there is such a place
/// nearer than half the run: runs that share no host share no card. `ends` ascend, the last is the
/// order's.
void snap_to_hosts(const ClusterSpec& cluster, const std::vector<int32_t>& order,
                   std::vector<size_t>& ends);

}  // namespace skein::plans
