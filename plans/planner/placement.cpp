#include "plans/planner/placement.hpp"

#include <algorithm>
#include <numeric>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// Hosts in the order in which the policy fills them.
std::vector<size_t> host_order(const std::vector<std::vector<int32_t>>& by_host,
                               PlacementPolicy policy, const Occupancy& occupancy) {
  std::vector<size_t> order(by_host.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const bool fresh = policy == PlacementPolicy::kFreshFirst;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool used_a = occupancy[a] > 0;
    const bool used_b = occupancy[b] > 0;
    return used_a != used_b && used_a != fresh;
  });
  return order;
}

/// How many devices each host gives when they are taken one by one from the least used host.
std::vector<int32_t> scattered(const std::vector<std::vector<int32_t>>& by_host, int32_t count,
                               const Occupancy& occupancy) {
  std::vector<int32_t> taken(by_host.size(), 0);
  for (; count > 0; --count) {
    size_t best = by_host.size();
    for (size_t h = 0; h < by_host.size(); ++h) {
      if (occupancy[h] + taken[h] == static_cast<int32_t>(by_host[h].size())) continue;
      if (best == by_host.size() || taken[h] < taken[best]) best = h;
    }
    SKEIN_CHECK(best < by_host.size()) << count;
    ++taken[best];
  }
  return taken;
}

}  // namespace

std::vector<std::vector<int32_t>> devices_by_host(const ClusterSpec& cluster) {
  std::vector<std::vector<int32_t>> by_host(cluster.hosts.size());
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    by_host[static_cast<size_t>(cluster.devices[d].host)].push_back(static_cast<int32_t>(d));
  }
  return by_host;
}

std::vector<int32_t> place_devices(const std::vector<std::vector<int32_t>>& by_host,
                                   PlacementPolicy policy, int32_t count, Occupancy& occupancy) {
  std::vector<int32_t> devices;
  auto take = [&](size_t host, int32_t number) {
    for (; number > 0; --number) {
      devices.push_back(by_host[host][static_cast<size_t>(occupancy[host]++)]);
    }
  };
  if (policy == PlacementPolicy::kScatterFirst) {
    const std::vector<int32_t> taken = scattered(by_host, count, occupancy);
    for (size_t h = 0; h < by_host.size(); ++h) take(h, taken[h]);
    return devices;
  }
  for (size_t h : host_order(by_host, policy, occupancy)) {
    const int32_t room = static_cast<int32_t>(by_host[h].size()) - occupancy[h];
    const int32_t number = std::min(room, count - static_cast<int32_t>(devices.size()));
    take(h, number);
  }
  SKEIN_CHECK(static_cast<int32_t>(devices.size()) == count) << count << " of " << devices.size();
  return devices;
}

std::vector<int32_t> free_devices(const std::vector<std::vector<int32_t>>& by_host,
                                  const Occupancy& occupancy) {
  std::vector<int32_t> devices;
  for (size_t h = 0; h < by_host.size(); ++h) {
    for (auto d = static_cast<size_t>(occupancy[h]); d < by_host[h].size(); ++d) {
      devices.push_back(by_host[h][d]);
    }
  }
  return devices;
}

}  // namespace skein::plans
