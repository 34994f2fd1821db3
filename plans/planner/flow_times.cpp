#include "plans/planner/flow_times.hpp"

#include <algorithm>
#include <limits>

namespace skein::plans {

FlowTimes::FlowTimes(const ClusterSpec& cluster) : cluster_(cluster) {
  for (size_t i = 0; i < cluster.links.size(); ++i) {
    const ClusterLink& link = cluster.links[i];
    link_of_.emplace(std::minmax(link.host_a, link.host_b), i);
  }
  load_us_.assign(2 * (cluster.devices.size() + cluster.hosts.size() + cluster.links.size()), 0);
}

void FlowTimes::load(size_t resource, double bytes_per_second, double bytes) {
  if (load_us_[resource] == 0) touched_.push_back(resource);
  load_us_[resource] += bytes / bytes_per_second * 1e6;
}

FlowTimes::Links::const_iterator FlowTimes::find_link(size_t host_a, size_t host_b) const {
  if (link_of_.empty()) return link_of_.end();
  return link_of_.find(std::minmax(static_cast<int32_t>(host_a), static_cast<int32_t>(host_b)));
}

FlowTimes::Duration FlowTimes::together(std::span<const Flow> flows, std::vector<CardLoad>* cards) {
  const size_t hosts = 2 * cluster_.devices.size();
  const size_t links = hosts + 2 * cluster_.hosts.size();
  Duration duration;
  for (const Flow& flow : flows) {
    if (flow.from == flow.to || flow.bytes <= 0) continue;
    const auto from = static_cast<size_t>(flow.from);
    const auto to = static_cast<size_t>(flow.to);
    const auto host_a = static_cast<size_t>(cluster_.devices[from].host);
    const auto host_b = static_cast<size_t>(cluster_.devices[to].host);
    const ClusterHost& a = cluster_.hosts[host_a];
    const ClusterHost& b = cluster_.hosts[host_b];
    if (host_a == host_b) {
      duration.latency_us = std::max(duration.latency_us, a.inside.latency_us);
      load(2 * from, a.inside.bytes_per_second, flow.bytes);
      load(2 * to + 1, a.inside.bytes_per_second, flow.bytes);
      continue;
    }
    load(hosts + 2 * host_a, a.network.bytes_per_second, flow.bytes);
    load(hosts + 2 * host_b + 1, b.network.bytes_per_second, flow.bytes);
    duration.crosses_hosts = true;
    double latency_us = a.network.latency_us + b.network.latency_us;
    if (const auto link = find_link(host_a, host_b); link != link_of_.end()) {
      const LinkSpeed& own = cluster_.links[link->second].speed;
      load(links + 2 * link->second + (host_a < host_b ? 0 : 1), own.bytes_per_second, flow.bytes);
      latency_us = own.latency_us;
    }
    duration.latency_us = std::max(duration.latency_us, latency_us);
  }
  for (size_t resource : touched_) {
    duration.bytes_us = std::max(duration.bytes_us, load_us_[resource]);
    if (cards != nullptr && resource >= hosts && resource < links) {
      cards->push_back({static_cast<int32_t>((resource - hosts) / 2), load_us_[resource]});
    }
    load_us_[resource] = 0;
  }
  touched_.clear();
  return duration;
}

LinkSpeed FlowTimes::path(int32_t device_a, int32_t device_b) const {
  const int32_t host_a = cluster_.devices[static_cast<size_t>(device_a)].host;
  const int32_t host_b = cluster_.devices[static_cast<size_t>(device_b)].host;
  if (device_a == device_b) return {std::numeric_limits<double>::infinity(), 0};
  const ClusterHost& a = cluster_.hosts[static_cast<size_t>(host_a)];
  const ClusterHost& b = cluster_.hosts[static_cast<size_t>(host_b)];
  if (host_a == host_b) return a.inside;
  LinkSpeed path{std::min(a.network.bytes_per_second, b.network.bytes_per_second),
                 a.network.latency_us + b.network.latency_us};
  const auto link = find_link(static_cast<size_t>(host_a), static_cast<size_t>(host_b));
  if (link != link_of_.end()) {
    const LinkSpeed& own = cluster_.links[link->second].speed;
    path.bytes_per_second = std::min(path.bytes_per_second, own.bytes_per_second);
    path.latency_us = own.latency_us;
  }
  return path;
}

}  // namespace skein::plans
