#include "plans/collectives/action_ends.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/schedule/walk_schedule.hpp"

namespace skein::plans {
namespace {

/// Unless all are known, those that are would stand beside guesses of another unit.
std::vector<ActionTimes> times_or_guesses(std::vector<ActionTimes> times, size_t stages) {
  const bool are_known =
      !times.empty() && std::all_of(times.begin(), times.end(),
                                    [](const ActionTimes& each) { return each.is_known(); });
  if (!are_known) times.assign(stages, {1, 1, 1});
  SKEIN_CHECK(times.size() == stages) << times.size() << " stages have times, of " << stages;
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

/// `free`: when the action's worker has ended the one before.
void add_action(const Action& action, const ActionTimes& times, uint64_t& free,
                std::vector<StageEnds>& ends) {
  const auto stage = static_cast<size_t>(action.stage);
  const auto microbatch = static_cast<size_t>(action.microbatch);
  const bool is_forward = action.type == ActionType::kForward;
  uint64_t begin = free;
  if (is_forward && stage > 0) begin = std::max(begin, ends[stage - 1].forward[microbatch]);
  if (!is_forward && action.type != ActionType::kBackwardWeight && stage + 1 < ends.size()) {
    begin = std::max(begin, ends[stage + 1].backward[microbatch]);
  }
  StageEnds& own = ends[stage];
  free = own.last = begin + duration_of(action.type, times);
  if (action.type == ActionType::kBackwardWeight) return;
  (is_forward ? own.forward : own.backward)[microbatch] = free;
}

}  // namespace

std::vector<StageEnds> action_ends(const Plan& plan, std::vector<ActionTimes> times) {
  const std::vector<ActionTimes> known = times_or_guesses(std::move(times), plan.stages.size());
  const auto count = static_cast<size_t>(plan.microbatch_count);
  std::vector<StageEnds> ends(plan.stages.size());
  std::vector<int32_t> rank_of_stage;
  for (size_t s = 0; s < ends.size(); ++s) {
    ends[s].forward.resize(count);
    ends[s].backward.resize(count);
    rank_of_stage.push_back(plan.stages[s].rank());
  }
  std::vector<uint64_t> free(plan.actions.size());
  const std::vector<size_t> seen = walk_schedule(
      plan.actions, rank_of_stage, static_cast<int32_t>(plan.microbatch_count),
      [&](size_t rank, const Action& action) {
        add_action(action, known[static_cast<size_t>(action.stage)], free[rank], ends);
      });
  for (size_t rank = 0; rank < seen.size(); ++rank) {
    SKEIN_CHECK(seen[rank] == plan.actions[rank].size()) << "rank " << rank << " cannot end";
  }
  return ends;
}

}  // namespace skein::plans
