#include "plans/coordinator/probe_ring.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

/// Of fewer members, all links are measured.
constexpr size_t kSampledFrom = 16;

/// One of each octave, so that near and far ones are among them.
std::vector<size_t> draw_distances(size_t count) {
  std::vector<size_t> distances = {1};
  for (size_t octave = 2; octave <= count / 2; octave *= 2) {
    const size_t width = std::min(octave, count / 2 - octave + 1);
    distances.push_back(octave + random_bits(0, count, octave) % width);
  }
  return distances;
}

}  // namespace

ProbeRing::ProbeRing(const std::map<WorkerId, Member>& members) {
  std::vector<std::pair<std::string, WorkerId>> hosts;
  for (const auto& [id, member] : members) hosts.emplace_back(member.request.host_name, id);
  std::sort(hosts.begin(), hosts.end());
  for (const auto& [host, id] : hosts) {
    place_of_[id] = order_.size();
    order_.push_back(id);
  }
  if (order_.size() >= kSampledFrom) {
    distances_ = draw_distances(order_.size());
  } else {
    for (size_t distance = 1; distance < order_.size(); ++distance) distances_.push_back(distance);
  }
}

std::vector<WorkerId> ProbeRing::peers_of(WorkerId worker) const {
  const size_t place = place_of_.at(worker);
  const size_t count = order_.size();
  std::set<WorkerId> peers;
  for (size_t distance : distances_) {
    peers.insert(order_[(place + distance) % count]);
    peers.insert(order_[(place + count - distance) % count]);
  }
  peers.erase(worker);
  return {peers.begin(), peers.end()};
}

}  // namespace skein::plans
