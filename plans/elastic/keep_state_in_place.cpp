#include "plans/elastic/keep_state_in_place.hpp"

#include <functional>
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

/// The best of all exchanges is looked for among so many workers; it takes time in proportion to
/// the third power of their number.
constexpr size_t kExchangedMax = 256;

/// The same numbers for slots of the same layers, or of the same places.
std::vector<int64_t> likeness(const Slot& slot, bool by_place) {
  std::vector<int64_t> numbers;
  for (const LayerRange& range : slot.layers) {
    numbers.push_back(range.begin);
    numbers.push_back(range.end);
  }
  if (!by_place) return numbers;
  for (size_t position : slot.positions) numbers.push_back(static_cast<int64_t>(position));
  return numbers;
}

using SlotHolders = std::map<WorkerId, Slot>;
using SlotTakers = std::map<WorkerId, WorkerId>;  // The worker that takes the slot of a worker.

/// Gives slots to workers who hold just their layers, those at the same place first. No other
/// choice keeps more: with sets of layers s, t and w', |s & w'| + |t & s| <= |s| + |t & w'|. What
/// is left are slots and workers that have no such counterpart.
void keep_equal(std::vector<Slot>& slots, const SlotHolders& holders,
                std::vector<WorkerId>& workers, SlotTakers& takers) {
  std::set<WorkerId> taken;
  for (bool by_place : {true, false}) {
    std::map<std::vector<int64_t>, std::vector<WorkerId>> idle;
    for (auto worker = workers.rbegin(); worker != workers.rend(); ++worker) {
      const auto holder = holders.find(*worker);
      if (holder == holders.end() || taken.contains(*worker)) continue;
      idle[likeness(holder->second, by_place)].push_back(*worker);
    }
    for (const Slot& slot : slots) {
      if (takers.contains(slot.worker)) continue;
      const auto found = idle.find(likeness(slot, by_place));
      if (found == idle.end() || found->second.empty()) continue;
      takers[slot.worker] = found->second.back();
      taken.insert(found->second.back());
      found->second.pop_back();
    }
  }
  std::erase_if(slots, [&](const Slot& slot) { return takers.contains(slot.worker); });
  std::erase_if(workers, [&](WorkerId worker) { return taken.contains(worker); });
}

/// Gives slots to workers by what they hold of them, most first. Slots of the same layers, and
/// workers that hold the same ones, are looked at as one.
void keep_most(std::vector<Slot>& slots, const SlotHolders& holders, std::vector<WorkerId>& workers,
               const ModelSpec& model, SlotTakers& takers) {
  struct Kind {
    const Slot* one = nullptr;
    std::vector<WorkerId> all;  // The next one comes last.
  };
  std::map<std::vector<int64_t>, Kind> open, idle;
  for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
    Kind& kind = open[likeness(*slot, /*by_place=*/false)];
    kind.one = &*slot;
    kind.all.push_back(slot->worker);
  }
  for (auto worker = workers.rbegin(); worker != workers.rend(); ++worker) {
    const auto holder = holders.find(*worker);
    if (holder == holders.end()) continue;
    Kind& kind = idle[likeness(holder->second, /*by_place=*/false)];
    kind.one = &holder->second;
    kind.all.push_back(*worker);
  }
  std::multimap<int64_t, std::pair<Kind*, Kind*>, std::greater<>> by_overlap;
  for (auto& [layers, slot] : open) {
    for (auto& [held, holder] : idle) {
      const int64_t elements = overlap(*slot.one, *holder.one, model);
      if (elements > 0) by_overlap.emplace(elements, std::pair{&slot, &holder});
    }
  }
  std::set<WorkerId> taken;
  for (const auto& [elements, pair] : by_overlap) {
    auto& [slot, holder] = pair;
    while (!slot->all.empty() && !holder->all.empty()) {
      takers[slot->all.back()] = holder->all.back();
      taken.insert(holder->all.back());
      slot->all.pop_back();
      holder->all.pop_back();
    }
  }
  std::erase_if(slots, [&](const Slot& slot) { return takers.contains(slot.worker); });
  std::erase_if(workers, [&](WorkerId worker) { return taken.contains(worker); });
  for (size_t s = 0; s < slots.size(); ++s) takers[slots[s].worker] = workers[s];
  slots.clear();
}

/// [slots][workers]: what stays if the worker takes the slot, and below it, as the last digit,
/// whether the worker stays at its place.
std::vector<std::vector<int64_t>> weights(const std::vector<Slot>& slots,
                                          const SlotHolders& holders,
                                          const std::vector<WorkerId>& workers,
                                          const ModelSpec& model) {
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

Plan keep_state_in_place(Plan plan, const Plan& current, std::vector<WorkerId> workers,
                         const ModelSpec& model) {
  std::vector<Slot> slots = slots_of(plan);
  SKEIN_CHECK(slots.size() <= workers.size())
      << slots.size() << " slots, " << workers.size() << " workers";
  SlotHolders holders;
  for (Slot& slot : slots_of(current)) holders[slot.worker] = std::move(slot);
  SlotTakers taker_of;
  keep_equal(slots, holders, workers, taker_of);
  if (workers.size() > kExchangedMax) keep_most(slots, holders, workers, model, taker_of);
  const std::vector<WorkerId> chosen =
      slots.empty() ? std::vector<WorkerId>()
                    : takers(weights(slots, holders, workers, model), workers);
  for (size_t s = 0; s < slots.size(); ++s) taker_of[slots[s].worker] = chosen[s];
  for (StagePlan& stage : plan.stages) {
    for (ReplicaPlan& replica : stage.replicas) replica.worker = taker_of.at(replica.worker);
  }
  return plan;
}

}  // namespace skein::plans
