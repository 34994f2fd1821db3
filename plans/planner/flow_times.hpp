#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "plans/profile/cluster.hpp"

namespace skein::plans {

/// Bytes from one device to another.
struct Flow {
  int32_t from = 0;
  int32_t to = 0;
  double bytes = 0;
};

/// How long flows take on a cluster. Not thread-safe: keeps scratch space. Borrows the cluster.
class FlowTimes {
 public:
  explicit FlowTimes(const ClusterSpec& cluster);
  FlowTimes(const FlowTimes&) = delete;
  FlowTimes& operator=(const FlowTimes&) = delete;

  struct Duration {
    double bytes_us = 0;         // Until the last byte has left.
    double latency_us = 0;       // The latency of the slowest path.
    bool crosses_hosts = false;  // Some flow leaves its host.
    double total_us() const { return bytes_us + latency_us; }
  };
  /// How long a host's card is busy with flows, both ways added up.
  struct CardLoad {
    int32_t host = 0;
    double busy_us = 0;
  };
  /// Until the last of flows that start together has arrived, nobody else being on their way: the
  /// most loaded port, card or link decides. O(flows). Appends to `cards`, if given.
  Duration together(std::span<const Flow> flows, std::vector<CardLoad>* cards = nullptr);

  /// As `path_speed`, in O(log links).
  LinkSpeed path(int32_t device_a, int32_t device_b) const;

 private:
  using Links = std::map<std::pair<int32_t, int32_t>, size_t>;  // (lower, higher host) -> index.
  Links::const_iterator find_link(size_t host_a, size_t host_b) const;
  void load(size_t resource, double bytes_per_second, double bytes);

  const ClusterSpec& cluster_;
  Links link_of_;
  // Resources: a port out and in per device, a card out and in per host, both ways of a link.
  std::vector<double> load_us_;
  std::vector<size_t> touched_;
};

}  // namespace skein::plans
