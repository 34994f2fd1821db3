#include "actors/worker/state_store.hpp"

#include <algorithm>
#include <iterator>

namespace skein::actors {
namespace {

/// Sets of one stage of which some layers have come: one is under way, and one may be given up.
constexpr int64_t kArrivingMax = 2;

}  // namespace

std::vector<plans::InventoryItem> StateStore::inventory() const {
  std::vector<plans::InventoryItem> all;
  for (const HeldState& each : held_) all.push_back({each.step, each.layers, each.generation});
  return all;
}

void StateStore::keep_models(const ReplicasRetired& retired, uint64_t generation) {
  // Plans that are prepared anew and never start would have their models add up.
  for (const PreparedReplica& replica : retired.replicas) {
    if (!retired.has_global_state) break;
    std::erase_if(held_, [&](const HeldState& each) {
      return each.model && each.step == retired.steps_done && each.generation == generation &&
             each.layers == replica.options.layers;
    });
  }
  for (const PreparedReplica& replica : retired.replicas) {
    // A plan that was prepared and never started has taken over the model of the one before.
    std::erase_if(held_, [&](const HeldState& each) { return each.model == replica.model; });
    if (!retired.has_global_state) continue;  // It has its own, which is that of no step.
    HeldState state;
    state.step = retired.steps_done;
    state.generation = generation;
    state.layers = replica.options.layers;
    state.model = replica.model;
    state.options = replica.options;
    held_.push_back(std::move(state));
  }
}

void StateStore::keep(const HeldState& snapshot, uint64_t generation) {
  // Each plan that begins at a step has a snapshot of it: without progress these would add up.
  std::erase_if(held_, [&](const HeldState& each) {
    return !each.model && each.step == snapshot.step && each.generation == generation &&
           each.layers == snapshot.layers;
  });
  held_.push_back(snapshot);
  held_.back().generation = generation;
}

void StateStore::keep_fetched(const std::vector<HeldState>& layers, uint64_t generation) {
  for (const HeldState& layer : layers) {
    const bool is_there = std::any_of(held_.begin(), held_.end(), [&](const HeldState& each) {
      return each.step == layer.step && each.generation == generation &&
             each.layers.begin <= layer.layers.begin && each.layers.end >= layer.layers.end;
    });
    if (is_there) continue;
    held_.push_back(layer);
    held_.back().generation = generation;
    held_.back().is_until_plan = true;
  }
}

void StateStore::replace_models(const std::vector<HeldState>& copies) {
  for (const HeldState& copy : copies) {
    const auto is_same = [&](const HeldState& each) {
      return each.step == copy.step && each.generation == copy.generation &&
             each.layers == copy.layers;
    };
    const size_t models =
        std::erase_if(held_, [&](const HeldState& each) { return each.model && is_same(each); });
    // Plans that are prepared anew and never start would have their copies add up.
    if (models == 0 || std::any_of(held_.begin(), held_.end(), is_same)) continue;
    held_.push_back(copy);
    held_.back().is_until_plan = true;
  }
}

std::optional<SnapshotTaken> StateStore::on_layer(const plans::ModelSpec& model,
                                                  const plans::PlanPart& plan,
                                                  const StateArrived& arrived) {
  const int64_t layer = arrived.key.receiver;
  const auto stage = std::find_if(plan.stages.begin(), plan.stages.end(),
                                  [&](const auto& each) { return each.layers.contains(layer); });
  if (stage == plan.stages.end() || !check_layer_state(model, layer, *arrived.tensor).ok()) {
    return std::nullopt;
  }
  const int32_t number = stage->stage;
  const std::pair<int32_t, uint64_t> name{number, arrived.key.step};
  if (!arriving_.contains(name) && has_arriving(number, kArrivingMax)) {
    // What is there of the oldest will not become whole: a layer of it was damaged.
    const auto oldest = arriving_.lower_bound({number, 0});
    if (oldest->first.second > arrived.key.step) return std::nullopt;
    arriving_.erase(oldest);
  }
  HeldState& state = arriving_[name];
  state.step = arrived.key.step;
  state.layers = stage->layers;
  state.copies[layer] = arrived.tensor;
  if (static_cast<int64_t>(state.copies.size()) < stage->layers.size()) return std::nullopt;
  SnapshotTaken whole{number, std::move(state)};
  arriving_.erase({number, arrived.key.step});
  return whole;
}

bool StateStore::has_arriving(int32_t stage, int64_t count) const {
  return std::distance(arriving_.lower_bound({stage, 0}), arriving_.lower_bound({stage + 1, 0})) >=
         count;
}

void StateStore::drop_damaged(const plans::ModelSpec& model) {
  std::erase_if(held_, [&](const HeldState& each) {
    return std::any_of(each.copies.begin(), each.copies.end(), [&](const auto& copy) {
      return !check_layer_state(model, copy.first, *copy.second).ok();
    });
  });
}

void StateStore::drop_rolled_back(uint64_t step, uint64_t generation) {
  std::erase_if(held_, [&](const HeldState& each) {
    return each.step == step && each.generation != generation;
  });
}

void StateStore::drop_before(uint64_t step) {
  std::erase_if(held_, [&](const HeldState& each) { return each.step < step; });
}

void StateStore::begin_plan(uint64_t first_step) {
  std::erase_if(held_, [&](const HeldState& each) {
    return each.model || each.is_until_plan || each.step > first_step;
  });
}

}  // namespace skein::actors
