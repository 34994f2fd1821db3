#include "plans/planner/device_orders.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "plans/planner/placement.hpp"

namespace skein::plans {
namespace {

using Order = std::vector<int32_t>;

/// So few devices are tried in all orders, 24 of them.
constexpr size_t kPermutedDevicesMax = 4;

Order fastest_first(CostModel& model, Order devices) {
  std::stable_sort(devices.begin(), devices.end(),
                   [&](int32_t a, int32_t b) { return model.speed(a) > model.speed(b); });
  return devices;
}

Order largest_first(const ClusterSpec& cluster, Order devices) {
  auto bytes = [&](int32_t device) {
    const int64_t memory = cluster.devices[static_cast<size_t>(device)].memory_bytes;
    return memory == 0 ? std::numeric_limits<int64_t>::max() : memory;
  };
  std::stable_sort(devices.begin(), devices.end(),
                   [&](int32_t a, int32_t b) { return bytes(a) > bytes(b); });
  return devices;
}

/// From the fastest host always to the host with the fastest path from the last one. O(hosts^2).
Order chained(CostModel& model, const std::vector<Order>& by_host) {
  std::vector<size_t> left(by_host.size());
  std::iota(left.begin(), left.end(), size_t{0});
  auto host_speed = [&](size_t host) {
    double speed = 0;
    for (int32_t device : by_host[host]) speed += model.speed(device);
    return speed;
  };
  auto take = [&](size_t at, Order& order) {
    const Order own = fastest_first(model, by_host[left[at]]);
    order.insert(order.end(), own.begin(), own.end());
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
  };
  Order order;
  size_t first = 0;
  for (size_t at = 1; at < left.size(); ++at) {
    if (host_speed(left[at]) > host_speed(left[first])) first = at;
  }
  take(first, order);
  while (!left.empty()) {
    size_t best = 0;
    double best_speed = -1;
    for (size_t at = 0; at < left.size(); ++at) {
      const double speed =
          model.flows().path(order.back(), by_host[left[at]].front()).bytes_per_second;
      if (speed > best_speed) {
        best = at;
        best_speed = speed;
      }
    }
    take(best, order);
  }
  return order;
}

/// All orders of few devices.
std::vector<Order> permutations(Order devices) {
  std::vector<Order> orders;
  std::sort(devices.begin(), devices.end());
  do {
    orders.push_back(devices);
  } while (std::next_permutation(devices.begin(), devices.end()));
  return orders;
}

Order in_turn(const std::vector<Order>& by_host) {
  Order order;
  size_t most = 0;
  for (const Order& devices : by_host) most = std::max(most, devices.size());
  for (size_t i = 0; i < most; ++i) {
    for (const Order& devices : by_host) {
      if (i < devices.size()) order.push_back(devices[i]);
    }
  }
  return order;
}

}  // namespace

std::vector<std::vector<int32_t>> device_orders(CostModel& model) {
  std::vector<Order> by_host;
  for (Order& devices : devices_by_host(model.cluster())) {
    if (!devices.empty()) by_host.push_back(std::move(devices));
  }
  Order given;
  for (const Order& devices : by_host) given.insert(given.end(), devices.begin(), devices.end());
  std::vector<Order> orders;
  auto add = [&](Order order) {
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) {
      orders.push_back(std::move(order));
    }
  };
  add(given);
  const Order fast = fastest_first(model, given);
  add(fast);
  add(Order(fast.rbegin(), fast.rend()));
  add(largest_first(model.cluster(), given));
  const Order chain = chained(model, by_host);
  add(chain);
  add(Order(chain.rbegin(), chain.rend()));
  add(in_turn(by_host));
  if (given.size() > kPermutedDevicesMax) return orders;
  for (Order& order : permutations(given)) add(std::move(order));
  return orders;
}

void snap_to_hosts(const ClusterSpec& cluster, const std::vector<int32_t>& order,
                   std::vector<size_t>& ends) {
  auto is_boundary = [&](size_t at) {
    return cluster.devices[static_cast<size_t>(order[at - 1])].host !=
           cluster.devices[static_cast<size_t>(order[at])].host;
  };
  size_t begin = 0;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    const size_t end = ends[i];
    const size_t reach = std::min(end - begin, ends[i + 1] - end) / 2;
    for (size_t far = 0; far <= reach; ++far) {
      const bool before = end - far > begin && is_boundary(end - far);
      if (!before && !is_boundary(end + far)) continue;
      ends[i] = before ? end - far : end + far;
      break;
    }
    begin = ends[i];
  }
}

}  // namespace skein::plans
