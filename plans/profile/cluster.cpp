#include "plans/profile/cluster.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

absl::Status bad_entry(const std::string& entry, double value, const std::string& advice) {
  return absl::InvalidArgumentError(absl::StrCat("cluster: ", entry, " = ", value, ": ", advice));
}

/// What is beyond these is of no cluster, and sums and quotients of it would overflow.
constexpr double kLeast = 1e-9;
constexpr double kMost = 1e15;
constexpr double kFastest = 1e30;  // A speed so high takes no time.

absl::Status check_positive(double value, const std::string& entry) {
  if (value >= kLeast && value <= kFastest) return absl::OkStatus();
  return bad_entry(entry, value, "must be from 1e-9 to 1e30");
}

absl::Status check_not_negative(double value, const std::string& entry) {
  if (value >= 0 && value <= kMost) return absl::OkStatus();
  return bad_entry(entry, value, "must be from 0 to 1e15");
}

absl::Status check_speed(const LinkSpeed& speed, const std::string& entry) {
  SKEIN_RETURN_IF_ERROR(
      check_positive(speed.bytes_per_second, absl::StrCat(entry, ".bytes_per_second")));
  return check_not_negative(speed.latency_us, absl::StrCat(entry, ".latency_us"));
}

absl::Status check_host_index(const ClusterSpec& cluster, int32_t host, const std::string& entry) {
  if (host >= 0 && host < static_cast<int32_t>(cluster.hosts.size())) return absl::OkStatus();
  return bad_entry(entry, host,
                   absl::StrCat("there are ", cluster.hosts.size(), " hosts, counted from 0"));
}

absl::Status check_device(const ClusterSpec& cluster, size_t index) {
  const ClusterDevice& device = cluster.devices[index];
  const std::string name = absl::StrCat("devices[", index, "]");
  SKEIN_RETURN_IF_ERROR(check_host_index(cluster, device.host, absl::StrCat(name, ".host")));
  SKEIN_RETURN_IF_ERROR(check_positive(device.speed, absl::StrCat(name, ".speed")));
  if (device.memory_bytes < 0) {
    return bad_entry(absl::StrCat(name, ".memory_bytes"), static_cast<double>(device.memory_bytes),
                     "must be at least 0");
  }
  SKEIN_RETURN_IF_ERROR(
      check_not_negative(device.price_per_hour, absl::StrCat(name, ".price_per_hour")));
  return check_not_negative(device.failures_per_hour, absl::StrCat(name, ".failures_per_hour"));
}

absl::Status check_links(const ClusterSpec& cluster) {
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (size_t i = 0; i < cluster.links.size(); ++i) {
    const ClusterLink& link = cluster.links[i];
    const std::string name = absl::StrCat("links[", i, "]");
    SKEIN_RETURN_IF_ERROR(check_host_index(cluster, link.host_a, absl::StrCat(name, ".host_a")));
    SKEIN_RETURN_IF_ERROR(check_host_index(cluster, link.host_b, absl::StrCat(name, ".host_b")));
    SKEIN_RETURN_IF_ERROR(check_speed(link.speed, absl::StrCat(name, ".speed")));
    if (link.host_a == link.host_b) {
      return bad_entry(absl::StrCat(name, ".host_b"), link.host_b,
                       "joins a host to itself; use the `inside` of the host");
    }
    if (!pairs.insert(std::minmax(link.host_a, link.host_b)).second) {
      return bad_entry(absl::StrCat(name, ".host_b"), link.host_b,
                       absl::StrCat("hosts ", link.host_a, " and ", link.host_b,
                                    " have a link already; give one per pair"));
    }
  }
  return absl::OkStatus();
}

const ClusterDevice& device_of(const ClusterSpec& cluster, int32_t device) {
  SKEIN_CHECK(device >= 0 && device < static_cast<int32_t>(cluster.devices.size()))
      << "device " << device << " of " << cluster.devices.size();
  return cluster.devices[static_cast<size_t>(device)];
}

}  // namespace

absl::Status validate(const ClusterSpec& cluster) {
  if (cluster.devices.empty()) {
    return absl::InvalidArgumentError("cluster: devices = []: give at least one device");
  }
  for (size_t i = 0; i < cluster.hosts.size(); ++i) {
    const std::string name = absl::StrCat("hosts[", i, "]");
    SKEIN_RETURN_IF_ERROR(check_speed(cluster.hosts[i].inside, absl::StrCat(name, ".inside")));
    SKEIN_RETURN_IF_ERROR(check_speed(cluster.hosts[i].network, absl::StrCat(name, ".network")));
  }
  for (size_t i = 0; i < cluster.devices.size(); ++i) {
    SKEIN_RETURN_IF_ERROR(check_device(cluster, i));
  }
  return check_links(cluster);
}

std::string group_note(const ClusterDevice& device) {
  if (device.group_bytes == 0) return "";
  return absl::StrCat(" (", device.group_bytes, " bytes are set aside for groups of GPUs; ",
                      "comm.backend = \"gloo\" needs none)");
}

int32_t link_between(const ClusterSpec& cluster, int32_t host_a, int32_t host_b) {
  for (size_t i = 0; i < cluster.links.size(); ++i) {
    const ClusterLink& link = cluster.links[i];
    if (std::minmax(link.host_a, link.host_b) == std::minmax(host_a, host_b)) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

LinkSpeed path_speed(const ClusterSpec& cluster, int32_t device_a, int32_t device_b) {
  if (device_a == device_b) return {std::numeric_limits<double>::infinity(), 0};
  const int32_t host_a = device_of(cluster, device_a).host;
  const int32_t host_b = device_of(cluster, device_b).host;
  const ClusterHost& a = cluster.hosts[static_cast<size_t>(host_a)];
  if (host_a == host_b) return a.inside;
  const ClusterHost& b = cluster.hosts[static_cast<size_t>(host_b)];
  LinkSpeed path;
  path.bytes_per_second = std::min(a.network.bytes_per_second, b.network.bytes_per_second);
  path.latency_us = a.network.latency_us + b.network.latency_us;
  if (const int32_t link = link_between(cluster, host_a, host_b); link >= 0) {
    const LinkSpeed& speed = cluster.links[static_cast<size_t>(link)].speed;
    path.bytes_per_second = std::min(path.bytes_per_second, speed.bytes_per_second);
    path.latency_us = speed.latency_us;
  }
  return path;
}

}  // namespace skein::plans
