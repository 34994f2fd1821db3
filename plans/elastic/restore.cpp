#include "plans/elastic/restore.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// Who holds each layer at one step.
using Holders = std::vector<std::set<WorkerId>>;  // [L]

Holders holders_at(const StateSources& sources, int64_t layer_count, uint64_t step) {
  Holders holders(static_cast<size_t>(layer_count));
  for (const auto& [worker, inventory] : sources.inventory) {
    for (const InventoryItem& holding : inventory) {
      if (holding.step != step) continue;
      // A worker speaks for itself: what it says beyond the model is of no use.
      const int64_t end = std::min(holding.layers.end, layer_count);
      for (int64_t layer = std::max<int64_t>(0, holding.layers.begin); layer < end; ++layer) {
        holders[static_cast<size_t>(layer)].insert(worker);
      }
    }
  }
  return holders;
}

bool is_whole(const Holders& holders) {
  return std::all_of(holders.begin(), holders.end(),
                     [](const std::set<WorkerId>& each) { return !each.empty(); });
}

/// Calls `use` with the holders of each step that may be used and at which every layer is held, the
/// newest step first, until it says that it is satisfied.
void visit_whole_steps(const StateSources& sources, int64_t layer_count,
                       const std::function<bool(uint64_t step, const Holders& holders)>& use) {
  std::set<uint64_t> steps;
  for (const auto& [worker, inventory] : sources.inventory) {
    for (const InventoryItem& holding : inventory) {
      const bool is_usable =
          holding.step <= sources.committed && holding.step >= sources.durable_step;
      if (is_usable) steps.insert(holding.step);
    }
  }
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const Holders holders = holders_at(sources, layer_count, *step);
    if (is_whole(holders) && use(*step, holders)) return;
  }
}

/// Who computes `layer`, ascending.
std::set<WorkerId> receivers_of(const Plan& plan, int64_t layer) {
  std::set<WorkerId> workers;
  for (const StagePlan& stage : plan.stages) {
    if (!stage.layers.contains(layer)) continue;
    for (const ReplicaPlan& replica : stage.replicas) workers.insert(replica.worker);
  }
  return workers;
}

/// None: somebody cannot reach any holder of what it needs.
std::optional<std::vector<LayerMove>> moves_from(const Holders& holders, const Plan& plan,
                                                 const WorkerPairs& apart) {
  std::vector<LayerMove> moves;
  std::map<WorkerId, int64_t> sent;
  for (size_t l = 0; l < holders.size(); ++l) {
    const auto layer = static_cast<int64_t>(l);
    // The first of the least loaded ones gives the layer next.
    std::set<std::pair<int64_t, WorkerId>> by_load;
    for (const WorkerId to : receivers_of(plan, layer)) {
      if (holders[l].contains(to)) continue;
      if (by_load.empty()) {
        for (const WorkerId holder : holders[l]) by_load.emplace(sent[holder], holder);
      }
      const auto source = std::find_if(by_load.begin(), by_load.end(), [&](const auto& each) {
        return !apart.contains(pair_of(each.second, to));
      });
      if (source == by_load.end()) return std::nullopt;
      const WorkerId from = by_load.extract(source).value().second;
      by_load.emplace(++sent[from], from);
      moves.push_back({layer, from, to});
    }
  }
  return moves;
}

}  // namespace

uint64_t newest_step(const StateSources& sources, int64_t layer_count) {
  uint64_t newest = sources.durable_step;
  visit_whole_steps(sources, layer_count, [&](uint64_t step, const Holders& /*holders*/) {
    newest = step;
    return true;
  });
  return newest;
}

RestoreDecision decide_restore(const Plan& plan, int64_t layer_count, const StateSources& sources) {
  SKEIN_CHECK(layer_count > 0) << layer_count;
  RestoreDecision decision{sources.durable_step, /*from_checkpoint=*/true, {}};
  visit_whole_steps(sources, layer_count, [&](uint64_t step, const Holders& holders) {
    auto moves = moves_from(holders, plan, sources.apart);
    if (!moves) return false;
    decision = {step, /*from_checkpoint=*/false, *std::move(moves)};
    return true;
  });
  return decision;
}

}  // namespace skein::plans
