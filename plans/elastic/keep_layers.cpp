#include "plans/elastic/keep_layers.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plans/elastic/plan_difference.hpp"

namespace skein::plans {
namespace {

using Layers = std::set<int64_t>;

int64_t common_bytes(const Layers& a, const Layers& b, const Profile& profile) {
  int64_t bytes = 0;
  for (const int64_t layer : a) {
    // Every layer counts, so that layers without weights still prefer to stay.
    if (b.contains(layer)) bytes += 1 + profile.layers[static_cast<size_t>(layer)].parameter_bytes;
  }
  return bytes;
}

bool are_alike(const ClusterDevice& a, const ClusterDevice& b) {
  return a.host == b.host && a.memory_bytes == b.memory_bytes &&
         std::max(a.speed, b.speed) <= kSpeedsAlike * std::min(a.speed, b.speed);
}

/// A worker's place in the new plan, and who may take it.
struct Match {
  int64_t kept_bytes = 0;
  WorkerId place;  // Named after the worker that the plan has there.
  WorkerId worker;
  /// Best first.
  bool operator<(const Match& other) const {
    return std::tuple(-kept_bytes, place, worker != place, worker) <
           std::tuple(-other.kept_bytes, other.place, other.worker != other.place, other.worker);
  }
};

}  // namespace

Plan with_layers_kept(const Plan& plan, const Plan& current, const Profile& profile,
                      const ClusterSpec& cluster) {
  const std::map<WorkerId, Layers> places = layers_of_workers(plan);
  const std::map<WorkerId, Layers> holders = layers_of_workers(current);
  auto device = [&](WorkerId worker) -> const ClusterDevice& {
    return cluster.devices[worker.value - 1];
  };
  std::vector<Match> matches;
  for (const auto& [place, layers] : places) {
    for (uint32_t w = 1; w <= cluster.devices.size(); ++w) {
      const WorkerId worker{w};
      if (!are_alike(device(place), device(worker))) continue;
      const auto held = holders.find(worker);
      const int64_t kept = held == holders.end() ? 0 : common_bytes(layers, held->second, profile);
      matches.push_back({kept, place, worker});
    }
  }
  std::sort(matches.begin(), matches.end());
  std::map<WorkerId, WorkerId> worker_of_place;
  std::set<WorkerId> taken;
  for (const Match& match : matches) {
    if (worker_of_place.contains(match.place) || taken.contains(match.worker)) continue;
    worker_of_place[match.place] = match.worker;
    taken.insert(match.worker);
  }
  // Likeness within a tolerance is no equivalence: a place may be left with nobody alike.
  if (worker_of_place.size() < places.size()) return plan;
  Plan kept = plan;
  for (StagePlan& stage : kept.stages) {
    for (ReplicaPlan& replica : stage.replicas) {
      replica.worker = worker_of_place.at(replica.worker);
    }
  }
  const int64_t moved_bytes = change_between(current, plan, profile).moved_bytes;
  return change_between(current, kept, profile).moved_bytes < moved_bytes ? kept : plan;
}

}  // namespace skein::plans
