#include "plans/simulator/cluster_paths.hpp"

#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

int32_t count_of(size_t count) { return static_cast<int32_t>(count); }

}  // namespace

std::vector<double> link_capacities(const ClusterSpec& cluster) {
  std::vector<double> capacities;
  auto add_both_ways = [&capacities](const LinkSpeed& speed) {
    capacities.insert(capacities.end(), 2, speed.bytes_per_second * kSecondsPerMicrosecond);
  };
  for (const ClusterDevice& device : cluster.devices) {
    add_both_ways(cluster.hosts[static_cast<size_t>(device.host)].inside);
  }
  for (const ClusterHost& host : cluster.hosts) add_both_ways(host.network);
  for (const ClusterLink& link : cluster.links) add_both_ways(link.speed);
  return capacities;
}

DevicePath path_between(const ClusterSpec& cluster, int32_t from, int32_t to) {
  DevicePath path;
  if (from == to) return path;
  path.latency_us = path_speed(cluster, from, to).latency_us;
  auto take = [&path](int32_t link) {
    path.links.ids[static_cast<size_t>(path.links.count++)] = link;
  };
  const int32_t host_from = cluster.devices[static_cast<size_t>(from)].host;
  const int32_t host_to = cluster.devices[static_cast<size_t>(to)].host;
  if (host_from == host_to) {
    take(2 * from);
    take(2 * to + 1);
    return path;
  }
  const int32_t cards = 2 * count_of(cluster.devices.size());
  take(cards + 2 * host_from);
  take(cards + 2 * host_to + 1);
  if (const int32_t link = link_between(cluster, host_from, host_to); link >= 0) {
    const bool is_forth = cluster.links[static_cast<size_t>(link)].host_a == host_from;
    take(cards + 2 * count_of(cluster.hosts.size()) + 2 * link + (is_forth ? 0 : 1));
  }
  return path;
}

}  // namespace skein::plans
