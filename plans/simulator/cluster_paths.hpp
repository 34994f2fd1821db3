#pragma once

#include <cstdint>
#include <vector>

#include "plans/profile/cluster.hpp"
#include "plans/simulator/fair_links.hpp"

namespace skein::plans {

/// The links of a cluster, one per direction: each device's port out and in, each host's card out
/// and in, each `ClusterLink` forth and back. In bytes per microsecond.
std::vector<double> link_capacities(const ClusterSpec& cluster);

/// How bytes go from one device to another one.
struct DevicePath {
  LinkSet links;  // Positions in `link_capacities`; none from a device to itself.
  double latency_us = 0;
};
DevicePath path_between(const ClusterSpec& cluster, int32_t from, int32_t to);

}  // namespace skein::plans
