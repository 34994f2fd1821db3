#include "dapple_clusters.hpp"

#include <cstdint>
#include <utility>

namespace skein::bench {
namespace {

constexpr double kGigabit = 1e9 / 8;      // Bytes per second.
constexpr double kNvlink = 25e9;          // Per device; HPGO's constant.
constexpr double kNetworkLatencyUs = 20;  // TCP within a rack, each of two cards half of it.
constexpr double kInsideLatencyUs = 5;
constexpr int64_t kGigabyte = 1'000'000'000;

plans::ClusterSpec hosts_of(int32_t hosts, int32_t devices_each, double gigabits) {
  plans::ClusterSpec cluster;
  for (int32_t h = 0; h < hosts; ++h) {
    plans::ClusterHost& host = cluster.hosts.emplace_back();
    host.name = "host" + std::to_string(h);
    host.inside = {kNvlink, kInsideLatencyUs};
    host.network = {gigabits * kGigabit, kNetworkLatencyUs / 2};
    for (int32_t d = 0; d < devices_each; ++d) {
      plans::ClusterDevice& device = cluster.devices.emplace_back();
      device.name = host.name + "/" + std::to_string(d);
      device.host = h;
      device.memory_bytes = 16 * kGigabyte;
    }
  }
  return cluster;
}

plans::ClusterSpec by_host() {
  plans::ClusterSpec cluster = hosts_of(3, 4, 25);
  for (plans::ClusterDevice& device : cluster.devices) {
    device.speed = 1.0 / static_cast<double>(1 << device.host);
  }
  return cluster;
}

plans::ClusterSpec mixed() {
  plans::ClusterSpec cluster = hosts_of(2, 8, 25);
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    cluster.devices[d].speed = 1.0 / static_cast<double>(1 << (d % 3));
    if (d % 3 == 0) cluster.devices[d].memory_bytes = 32 * kGigabyte;
  }
  return cluster;
}

plans::ClusterSpec slow_links() {
  plans::ClusterSpec cluster = hosts_of(16, 1, 10);
  for (size_t d = 1; d < cluster.devices.size(); d += 2) cluster.devices[d].speed = 0.5;
  cluster.links.push_back({3, 4, {2 * kGigabit, kNetworkLatencyUs}});
  cluster.links.push_back({7, 8, {2 * kGigabit, kNetworkLatencyUs}});
  return cluster;
}

}  // namespace

std::vector<DappleCluster> dapple_clusters() {
  return {{"A", "2 x 8, NVLink, 25 Gb/s", hosts_of(2, 8, 25)},
          {"B", "16 x 1, 25 Gb/s", hosts_of(16, 1, 25)},
          {"C", "16 x 1, 10 Gb/s", hosts_of(16, 1, 10)},
          {"D", "3 x 4 of speed 1, 1/2, 1/4", by_host()},
          {"E", "2 x 8, speeds and memories mixed", mixed()},
          {"F", "16 x 1, speeds mixed, two slow links", slow_links()}};
}

}  // namespace skein::bench
