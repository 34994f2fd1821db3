#include "plans/elastic/snapshot_peers.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <tuple>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// Elements of a stage's parameters; the bytes of its state are in proportion.
int64_t parameter_elements(const ModelSpec& model, const LayerRange& layers) {
  int64_t elements = 0;
  for (const ParameterSpec& parameter : range_parameters(model, layers)) {
    elements += element_count(parameter);
  }
  return elements;
}

std::set<WorkerId> workers_of_stage(const StagePlan& stage) {
  std::set<WorkerId> workers;
  for (const ReplicaPlan& replica : stage.replicas) workers.insert(replica.worker);
  return workers;
}

}  // namespace

std::vector<WorkerId> choose_snapshot_peers(const Plan& plan, const ModelSpec& model,
                                            const std::map<WorkerId, std::string>& hosts,
                                            const WorkerPairs& apart) {
  std::map<WorkerId, int64_t> kept;
  std::vector<WorkerId> snapshot_peers;
  for (const StagePlan& stage : plan.stages) {
    const WorkerId owner = stage.replicas.front().worker;
    SKEIN_CHECK(hosts.contains(owner)) << owner << " has no host";
    const std::string& home = hosts.at(owner);
    const std::set<WorkerId> own_stage = workers_of_stage(stage);
    using Preference = std::tuple<bool, bool, int64_t, WorkerId>;  // Smaller is better.
    std::optional<Preference> best;
    for (const auto& [worker, host] : hosts) {
      if (worker == owner || apart.contains(pair_of(worker, owner))) continue;
      const Preference own{host == home, own_stage.contains(worker), kept[worker], worker};
      if (!best || own < *best) best = own;
    }
    const WorkerId none = plan.mode == kLocalMode ? owner : WorkerId{};
    const WorkerId snapshot_peer = best ? std::get<WorkerId>(*best) : none;
    if (best) kept[snapshot_peer] += parameter_elements(model, stage.layers);
    snapshot_peers.push_back(snapshot_peer);
  }
  return snapshot_peers;
}

}  // namespace skein::plans
