#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skein::plans {

/// A path for bytes. Full duplex: both directions have the whole bandwidth.
struct LinkSpeed {
  double bytes_per_second = 1e9;
  double latency_us = 0;
  bool operator==(const LinkSpeed&) const = default;
};

struct ClusterHost {
  std::string name;
  LinkSpeed inside;   // The link of each device of the host to the others of the host.
  LinkSpeed network;  // The speed of the host's network card, which its devices share.
  bool operator==(const ClusterHost&) const = default;
};

struct ClusterDevice {
  std::string name;
  int32_t host = 0;              // Index into `hosts`.
  double speed = 1.0;            // 1.0 is the device of the profile; 0.5 takes twice the time.
  int64_t memory_bytes = 0;      // 0: not limited.
  double price_per_hour = 0;     // 0: not known.
  double failures_per_hour = 0;  // 0: not known.
  int64_t group_bytes = 0;       // Memory beside `memory_bytes` that groups of GPUs take.
  bool operator==(const ClusterDevice&) const = default;
};

/// A path between two hosts, shared by all their devices, that is slower than the network cards or
/// has another latency. It joins both hosts in both directions.
struct ClusterLink {
  int32_t host_a = 0;
  int32_t host_b = 0;
  LinkSpeed speed;
  bool operator==(const ClusterLink&) const = default;
};

/// Machines and what joins them. Worker w of a plan (counted from 1) is `devices[w - 1]`.
struct ClusterSpec {
  std::vector<ClusterHost> hosts;
  std::vector<ClusterDevice> devices;
  std::vector<ClusterLink> links;
  bool operator==(const ClusterSpec&) const = default;
};

/// For an error that says what memory a device has: what groups of GPUs take of it, and how to do
/// without. Empty if they take none.
std::string group_note(const ClusterDevice& device);

/// InvalidArgument naming the entry (`devices[3].speed`) if an index, speed or bandwidth is out of
/// range (bandwidths and speeds are finite and above 0), a pair of hosts has two links, or there is
/// no device.
absl::Status validate(const ClusterSpec& cluster);

/// Index into `links` of the link of two hosts, in either order; -1: they have none.
int32_t link_between(const ClusterSpec& cluster, int32_t host_a, int32_t host_b);

/// The path between two devices with nobody else on it. Inside a host: `inside`; between hosts: the
/// slower of both network cards and of the `ClusterLink` of the pair, if any, with the sum of the
/// latencies of the cards or the latency of the `ClusterLink`. A device to itself: infinitely fast.
LinkSpeed path_speed(const ClusterSpec& cluster, int32_t device_a, int32_t device_b);

}  // namespace skein::plans
