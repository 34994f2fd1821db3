#include "plans/collectives/communication_order.hpp"

#include <algorithm>

#include "plans/base/check.hpp"
#include "plans/schedule/walk_schedule.hpp"

namespace skein::plans {
namespace {

/// By stage. Unless all are known, those that are would stand beside guesses of another unit.
std::vector<ActionTimes> times_of(const Plan& plan) {
  std::vector<ActionTimes> times;
  for (const StagePlan& stage : plan.stages) times.push_back(stage.times);
  const bool are_known = std::all_of(times.begin(), times.end(),
                                     [](const ActionTimes& each) { return each.is_known(); });
  if (!are_known) times.assign(plan.stages.size(), {1, 1, 1});
  return times;
}

uint64_t duration_of(ActionType type, const ActionTimes& times) {
  switch (type) {
    case ActionType::kForward:
      return times.forward_us;
    case ActionType::kBackwardInput:
      return times.backward_input_us;
    case ActionType::kBackwardWeight:
      return times.backward_weight_us;
    default:
      return times.backward_input_us + times.backward_weight_us;
  }
}

/// When the actions of a plan end, without any time for what they pass on.
class ActionEnds {
 public:
  explicit ActionEnds(const Plan& plan)
      : forward_(plan.stages.size() * count_of(plan)),
        backward_(forward_.size()),
        last_(plan.stages.size()),
        times_(times_of(plan)),
        stage_count_(plan.stages.size()),
        microbatch_count_(count_of(plan)) {
    std::vector<int32_t> rank_of_stage;
    for (const StagePlan& stage : plan.stages) rank_of_stage.push_back(stage.rank());
    std::vector<uint64_t> free(plan.actions.size());
    const std::vector<size_t> seen =
        walk_schedule(plan.actions, rank_of_stage, static_cast<int32_t>(microbatch_count_),
                      [&](size_t rank, const Action& action) { add(action, free[rank]); });
    for (size_t rank = 0; rank < seen.size(); ++rank) {
      SKEIN_CHECK(seen[rank] == plan.actions[rank].size()) << "rank " << rank << " cannot end";
    }
  }

  uint64_t forward(size_t stage, size_t microbatch) const {
    return forward_[stage * microbatch_count_ + microbatch];
  }
  /// The place of the B or I.
  uint64_t backward(size_t stage, size_t microbatch) const {
    return backward_[stage * microbatch_count_ + microbatch];
  }
  uint64_t last(size_t stage) const { return last_[stage]; }

 private:
  static size_t count_of(const Plan& plan) { return static_cast<size_t>(plan.microbatch_count); }

  void add(const Action& action, uint64_t& free) {
    const auto stage = static_cast<size_t>(action.stage);
    const auto microbatch = static_cast<size_t>(action.microbatch);
    const bool is_forward = action.type == ActionType::kForward;
    uint64_t begin = free;
    if (is_forward && stage > 0) begin = std::max(begin, forward(stage - 1, microbatch));
    if (!is_forward && action.type != ActionType::kBackwardWeight && stage + 1 < stage_count_) {
      begin = std::max(begin, backward(stage + 1, microbatch));
    }
    const uint64_t end = free = last_[stage] = begin + duration_of(action.type, times_[stage]);
    if (action.type == ActionType::kBackwardWeight) return;
    (is_forward ? forward_ : backward_)[stage * microbatch_count_ + microbatch] = end;
  }

  std::vector<uint64_t> forward_, backward_;  // [stages, micro-batches]
  std::vector<uint64_t> last_;                // [stages]
  std::vector<ActionTimes> times_;            // [stages]
  size_t stage_count_, microbatch_count_;
};

/// An operation of the step, in the order of its members: when it is ready, then transfers before
/// sums, as the next stage waits for them; what is left decides between those of one time.
struct Operation {
  uint64_t ready = 0;
  bool is_sum = false;
  uint64_t group = 0;
  TransferId transfer;
  auto operator<=>(const Operation&) const = default;
};

void add_transfers(const Plan& plan, const ActionEnds& ends, std::vector<Operation>& operations) {
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (const ReplicaPlan& replica : plan.stages[stage].replicas) {
      for (int step : {+1, -1}) {
        for (const Route& route : routes_from(plan, replica.id, step)) {
          for (int32_t m = 0; m < plan.microbatch_count; ++m) {
            const auto microbatch = static_cast<size_t>(m);
            const uint64_t ready =
                step > 0 ? ends.forward(stage, microbatch) : ends.backward(stage, microbatch);
            operations.push_back({ready, false, 0, {route.from, route.to, m}});
          }
        }
      }
    }
  }
}

void add_sums(const Plan& plan, const ActionEnds& ends, std::vector<Operation>& operations) {
  for (size_t group = 0; group < plan.groups.size(); ++group) {
    uint64_t ready = 0;
    for (ReplicaId member : plan.groups[group].members) {
      ready = std::max(ready, ends.last(static_cast<size_t>(stage_of(plan, member))));
    }
    operations.push_back({ready, true, group, {}});
  }
}

}  // namespace

CommunicationPlaces communication_places(const Plan& plan) {
  const ActionEnds ends(plan);
  std::vector<Operation> operations;
  add_transfers(plan, ends, operations);
  add_sums(plan, ends, operations);
  std::sort(operations.begin(), operations.end());
  CommunicationPlaces places;
  places.groups.resize(plan.groups.size());
  for (size_t place = 0; place < operations.size(); ++place) {
    const Operation& operation = operations[place];
    if (operation.is_sum) {
      places.groups[operation.group] = place;
    } else {
      places.transfers[operation.transfer] = place;
    }
  }
  return places;
}

std::vector<StagePair> linked_stages(const Plan& plan) {
  std::vector<StagePair> pairs;
  for (size_t front = 0; front + 1 < plan.stages.size(); ++front) {
    if (plan.stages[front].rank() == plan.stages[front + 1].rank()) continue;
    pairs.push_back(
        {static_cast<int32_t>(front), GroupId{static_cast<uint32_t>(plan.groups.size() + front)}});
  }
  return pairs;
}

std::vector<WorkerId> workers_of(const Plan& plan, const StagePair& pair) {
  std::vector<WorkerId> workers;
  const auto front = static_cast<size_t>(pair.front);
  for (size_t stage : {front, front + 1}) {
    for (const ReplicaPlan& replica : plan.stages[stage].replicas) {
      workers.push_back(replica.worker);
    }
  }
  return workers;
}

}  // namespace skein::plans
