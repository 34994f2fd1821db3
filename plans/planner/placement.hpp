#pragma once

#include <cstdint>
#include <vector>

#include "plans/profile/cluster.hpp"

namespace skein::plans {

/// How devices for a stage are taken. Source: DAPPLE, PPoPP'21, section 4.2.
enum class PlacementPolicy {
  kFreshFirst,    // Unused hosts first: the stage stays inside a host, hosts may fragment.
  kAppendFirst,   // Partly used hosts first: fills them up.
  kScatterFirst,  // Spread evenly over the hosts: where weights are small.
};
inline constexpr PlacementPolicy kPlacementPolicies[] = {
    PlacementPolicy::kFreshFirst, PlacementPolicy::kAppendFirst, PlacementPolicy::kScatterFirst};

/// Devices in use per host. Devices of a host are equal here, so their number says which.
/// Differs: the original keys its memo by a bitset of devices; counts merge more states.
using Occupancy = std::vector<int32_t>;

/// The devices of each host, ascending.
std::vector<std::vector<int32_t>> devices_by_host(const ClusterSpec& cluster);

/// Takes `count` free devices by `policy` and marks them in `occupancy`; there must be as many.
/// Ties go to the earlier host. Ascending within a host, hosts in the order they were taken.
std::vector<int32_t> place_devices(const std::vector<std::vector<int32_t>>& by_host,
                                   PlacementPolicy policy, int32_t count, Occupancy& occupancy);

/// All free devices, host by host.
std::vector<int32_t> free_devices(const std::vector<std::vector<int32_t>>& by_host,
                                  const Occupancy& occupancy);

}  // namespace skein::plans
