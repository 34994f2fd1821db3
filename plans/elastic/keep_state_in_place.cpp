#include "plans/elastic/keep_state_in_place.hpp"

#include <map>
#include <set>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/elastic/best_assignment.hpp"

namespace skein::plans {
namespace {

/// What one worker of a plan has.
struct Slot {
  WorkerId worker;
  std::vector<LayerRange> layers;  // The layers of each of its stages.
  std::vector<size_t> positions;   // Among the replicas of each.
  bool is_same_place(const Slot& other) const {
    return layers == other.layers && positions == other.positions;
  }
};

/// In the order in which the workers appear in the plan.
std::vector<Slot> slots_of(const Plan& plan) {
  std::vector<Slot> slots;
  std::map<WorkerId, size_t> slot_of;
  for (const StagePlan& stage : plan.stages) {
    for (size_t position = 0; position < stage.replicas.size(); ++position) {
      const WorkerId worker = stage.replicas[position].worker;
      const auto [found, is_new] = slot_of.emplace(worker, slots.size());
      if (is_new) slots.push_back({worker, {}, {}});
      slots[found->second].layers.push_back(stage.layers);
      slots[found->second].positions.push_back(position);
    }
  }
  return slots;
}

/// Elements of the slot's parameters that the holder has; their bytes are in proportion.
int64_t overlap(const Slot& slot, const Slot& holder, const ModelSpec& model) {
  int64_t elements = 0;
  for (const LayerRange& range : slot.layers) {
    for (int64_t layer = range.begin; layer < range.end; ++layer) {
      bool is_held = false;
      for (const LayerRange& held : holder.layers) is_held = is_held || held.contains(layer);
      if (!is_held) continue;
      for (const ParameterSpec& parameter : layer_parameters(model, layer, range)) {
        elements += element_count(parameter);
      }
    }
  }
  return elements;
}

/// [slots][workers]: what stays if the worker takes the slot, and below it, as the last digit,
/// whether the worker stays at its place.
std::vector<std::vector<int64_t>> weights(const std::vector<Slot>& slots, const Plan& current,
                                          const std::vector<WorkerId>& workers,
                                          const ModelSpec& model) {
  std::map<WorkerId, Slot> holders;
  for (Slot& slot : slots_of(current)) holders[slot.worker] = std::move(slot);
  const auto base = static_cast<int64_t>(slots.size()) + 1;
  std::vector<std::vector<int64_t>> all;
  for (const Slot& slot : slots) {
    std::vector<int64_t>& row = all.emplace_back();
    for (const WorkerId worker : workers) {
      const auto holder = holders.find(worker);
      if (holder == holders.end()) {
        row.push_back(0);
        continue;
      }
      const bool stays = slot.is_same_place(holder->second);
      row.push_back(overlap(slot, holder->second, model) * base + (stays ? 1 : 0));
    }
  }
  return all;
}

/// The worker that takes each slot.
std::vector<WorkerId> takers(const std::vector<std::vector<int64_t>>& weights,
                             const std::vector<WorkerId>& workers) {
  const std::vector<size_t> best = best_assignment(weights);
  std::set<WorkerId> idle(workers.begin(), workers.end());
  std::vector<WorkerId> takers(best.size());
  for (size_t slot = 0; slot < best.size(); ++slot) {
    if (weights[slot][best[slot]] == 0) continue;
    takers[slot] = workers[best[slot]];
    idle.erase(takers[slot]);
  }
  // Nobody who is idle holds anything of a slot that is left, or the assignment was not the best.
  for (WorkerId& taker : takers) {
    if (taker.value == 0) taker = idle.extract(idle.begin()).value();
  }
  return takers;
}

}  // namespace

Plan keep_state_in_place(Plan plan, const Plan& current, const std::vector<WorkerId>& workers,
                         const ModelSpec& model) {
  const std::vector<Slot> slots = slots_of(plan);
  SKEIN_CHECK(slots.size() <= workers.size())
      << slots.size() << " slots, " << workers.size() << " workers";
  const std::vector<WorkerId> chosen = takers(weights(slots, current, workers, model), workers);
  std::map<WorkerId, WorkerId> taker_of;
  for (size_t s = 0; s < slots.size(); ++s) taker_of[slots[s].worker] = chosen[s];
  for (StagePlan& stage : plan.stages) {
    for (ReplicaPlan& replica : stage.replicas) replica.worker = taker_of.at(replica.worker);
  }
  return plan;
}

}  // namespace skein::plans
