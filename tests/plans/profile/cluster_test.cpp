#include "plans/profile/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace skein::plans {
namespace {

/// Three hosts of two devices; hosts 0 and 2 have a link of their own.
ClusterSpec three_hosts() {
  ClusterSpec cluster;
  for (int32_t h = 0; h < 3; ++h) {
    cluster.hosts.push_back({"host", {100e9, 1}, {(h + 1) * 1e9, 10.0 * (h + 1)}});
    for (int32_t d = 0; d < 2; ++d) {
      ClusterDevice& device = cluster.devices.emplace_back();
      device.host = h;
    }
  }
  cluster.links.push_back({2, 0, {5e8, 7}});
  return cluster;
}

TEST(Cluster, RefusesWhatIsOutOfRangeWithTheEntry) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<const char*, std::function<void(ClusterSpec&)>>> breaks = {
      {"devices", [](ClusterSpec& c) { c.devices.clear(); }},
      {"devices[1].host", [](ClusterSpec& c) { c.devices[1].host = 3; }},
      {"devices[1].host", [](ClusterSpec& c) { c.devices[1].host = -1; }},
      {"devices[0].speed", [](ClusterSpec& c) { c.devices[0].speed = 0; }},
      {"devices[0].memory_bytes", [](ClusterSpec& c) { c.devices[0].memory_bytes = -1; }},
      {"devices[0].price_per_hour", [&](ClusterSpec& c) { c.devices[0].price_per_hour = nan; }},
      {"devices[0].failures_per_hour", [](ClusterSpec& c) { c.devices[0].failures_per_hour = -1; }},
      {"hosts[1].inside.bytes_per_second",
       [&](ClusterSpec& c) { c.hosts[1].inside.bytes_per_second = infinity; }},
      {"hosts[1].network.bytes_per_second",
       [](ClusterSpec& c) { c.hosts[1].network.bytes_per_second = 0; }},
      {"hosts[1].network.latency_us", [](ClusterSpec& c) { c.hosts[1].network.latency_us = -1; }},
      {"links[0].host_a", [](ClusterSpec& c) { c.links[0].host_a = 9; }},
      {"links[0].host_b", [](ClusterSpec& c) { c.links[0].host_b = 2; }},
      {"links[0].speed", [&](ClusterSpec& c) { c.links[0].speed.latency_us = nan; }},
      {"links[1].host_b",
       [](ClusterSpec& c) {
         c.links.push_back({0, 2, {}});
       }},
  };
  EXPECT_TRUE(validate(three_hosts()).ok());
  for (const auto& [entry, spoil] : breaks) {
    ClusterSpec cluster = three_hosts();
    spoil(cluster);
    const absl::Status status = validate(cluster);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << entry;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(entry));
  }
}

TEST(Cluster, ADeviceReachesItselfAtOnce) {
  const LinkSpeed path = path_speed(three_hosts(), 3, 3);
  EXPECT_TRUE(std::isinf(path.bytes_per_second));
  EXPECT_EQ(path.latency_us, 0);
}

TEST(Cluster, PathsTakeTheSlowestPartAndTheLatencyOfTheCardsOrTheLink) {
  const ClusterSpec cluster = three_hosts();
  EXPECT_EQ(path_speed(cluster, 0, 1), (LinkSpeed{100e9, 1}));
  EXPECT_EQ(path_speed(cluster, 0, 2), (LinkSpeed{1e9, 30}));
  EXPECT_EQ(path_speed(cluster, 2, 5), (LinkSpeed{2e9, 50}));
  EXPECT_EQ(path_speed(cluster, 0, 4), (LinkSpeed{5e8, 7}));
}

TEST(Cluster, PathsAreTheSameBothWays) {
  const ClusterSpec cluster = three_hosts();
  for (int32_t a = 0; a < 6; ++a) {
    for (int32_t b = 0; b < 6; ++b) {
      EXPECT_EQ(path_speed(cluster, a, b), path_speed(cluster, b, a));
    }
  }
}

}  // namespace
}  // namespace skein::plans
