#include "cli/config/cluster_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace skein::cli {
namespace {

using testing::HasSubstr;

constexpr const char* kTwoHosts = R"([[host]]
name = "fast"
devices = 2
memory_gb = 24
inside_gbps = 200
[[host]]
name = "slow"
network_gbps = 1
network_latency_us = 100
[[host.device]]
name = "old card"
speed = 0.25
price_per_hour = 0.5
failures_per_hour = 0.01
[[host.device]]
[[link]]
hosts = ["fast", "slow"]
gbps = 0.5
latency_us = 2000
)";

std::string cluster_with(const std::string& from, const std::string& to) {
  std::string text = kTwoHosts;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ClusterFile, ReadsHostsDevicesAndLinks) {
  const auto cluster = parse_cluster(kTwoHosts, "c.toml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(cluster->hosts.size(), 2);
  EXPECT_EQ(cluster->hosts[0].inside.bytes_per_second, 25e9);
  EXPECT_EQ(cluster->hosts[1].network, (plans::LinkSpeed{0.125e9, 100}));
  ASSERT_EQ(cluster->devices.size(), 4);
  EXPECT_EQ(cluster->devices[1].name, "fast:1");
  EXPECT_EQ(cluster->devices[1].memory_bytes, 24'000'000'000);
  EXPECT_EQ(cluster->devices[2], (plans::ClusterDevice{"old card", 1, 0.25, 0, 0.5, 0.01}));
  EXPECT_EQ(cluster->devices[3].name, "slow:1");
  EXPECT_EQ(cluster->devices[3].host, 1);
  EXPECT_EQ(cluster->links[0], (plans::ClusterLink{0, 1, {0.0625e9, 2000}}));
}

TEST(ClusterFile, ReadsWhatItWrites) {
  const auto cluster = parse_cluster(kTwoHosts, "c.toml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto back = parse_cluster(to_toml(*cluster), "again.toml");
  ASSERT_TRUE(back.ok()) << back.status() << to_toml(*cluster);
  EXPECT_EQ(*back, *cluster);
}

TEST(ClusterFile, AHostWithoutDevicesIsOneDevice) {
  const auto cluster = parse_cluster("[[host]]\nname = \"a\"\nspeed = 0.5\n", "c.toml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(cluster->devices.size(), 1);
  EXPECT_EQ(cluster->devices[0].name, "a");
  EXPECT_EQ(cluster->devices[0].speed, 0.5);
}

struct BadCluster {
  std::string from;
  std::string to;
  std::string message;
};

TEST(ClusterFile, SaysWhatIsWrongAndWhere) {
  const std::vector<BadCluster> table = {
      {"devices = 2", "devices = ", "c.toml:3: "},
      {"devices = 2", "device_count = 2", "c.toml:3: host.device_count: unknown key"},
      {"memory_gb", "memory_gib", "c.toml:4: host.memory_gib: unknown key (did you mean memory_gb"},
      {"devices = 2", "devices = 0", "c.toml:3: host.devices: expected an integer from 1"},
      {"devices = 2", "devices = \"2\"", "c.toml:3: host.devices: expected an integer"},
      {"memory_gb = 24", "memory_gb = -1", "c.toml:4: host.memory_gb: expected a number of 0"},
      {"inside_gbps = 200", "inside_gbps = 0", "c.toml:5: host.inside_gbps: expected a number abo"},
      {"network_gbps = 1", "network_gbps = inf", "c.toml:8: host.network_gbps: expected a number"},
      {"\"slow\"", "\"fast\"", "c.toml:7: host.name: there is a host fast already"},
      {"name = \"slow\"", "name = 3", "c.toml:7: host.name: expected a name in quotes, got 3"},
      {"network_latency_us = 100", "devices = 3", "c.toml:9: host.devices: give either it or"},
      {"speed = 0.25", "speed = 0", "c.toml:12: host.device.speed: expected a number above 0"},
      {"speed = 0.25", "sped = 1", "c.toml:12: host.device.sped: unknown key (did you mean speed?"},
      {"failures_per_hour = 0.01", "failures_per_hour = -1", "c.toml:14: host.device.failures_per"},
      {"[\"fast\", \"slow\"]", "[\"fast\", \"slo\"]",
       "c.toml:17: link.hosts: there is no host slo (did you mean slow?)"},
      {"[\"fast\", \"slow\"]", "[\"fast\"]", "c.toml:17: link.hosts: expected two names"},
      {"[\"fast\", \"slow\"]", "[\"fast\", \"fast\"]", "link.hosts: expected two different hosts"},
      {"gbps = 0.5", "gbp = 0.5", "c.toml:18: link.gbp: unknown key (did you mean gbps?)"},
      {"gbps = 0.5\n", "", "c.toml:16: link.gbps: missing"},
      {"[[link]]", "[[links]]", "links: unknown key (did you mean link?)"},
      {"[[link]]", "[link]", "link: write [[link]]"},
  };
  for (const BadCluster& bad : table) {
    const auto cluster = parse_cluster(cluster_with(bad.from, bad.to), "c.toml");
    ASSERT_FALSE(cluster.ok()) << bad.to;
    EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(cluster.status().message()), HasSubstr(bad.message));
  }
  EXPECT_THAT(std::string(parse_cluster("", "c.toml").status().message()),
              HasSubstr("write at least one [[host]]"));
  EXPECT_THAT(std::string(load_cluster("/none/c.toml").status().message()),
              HasSubstr("no cluster file /none/c.toml"));
}

TEST(ClusterFile, TheExamplesAreRead) {
  for (const char* path : {"examples/cluster-equal.toml", "examples/cluster-unequal.toml",
                           "examples/cluster-gpus.toml"}) {
    const auto cluster = load_cluster(path);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const auto back = parse_cluster(to_toml(*cluster), "again.toml");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, *cluster);
  }
}

TEST(ClusterFile, TheExampleOfTheDocumentationIsRead) {
  std::ifstream file("docs/cluster.md");
  std::ostringstream text;
  text << file.rdbuf();
  const size_t begin = text.str().find("```toml\n");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = text.str().find("```", begin + 3);
  const std::string example = text.str().substr(begin + 8, end - begin - 8);
  EXPECT_TRUE(parse_cluster(example, "docs/cluster.md").ok())
      << parse_cluster(example, "docs/cluster.md").status();
}

}  // namespace
}  // namespace skein::cli
