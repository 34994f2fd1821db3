#include "plans/schedule/walk_schedule.hpp"

namespace skein::plans {
namespace {

/// Which outputs exist.
class Outputs {
 public:
  Outputs(size_t stage_count, int32_t microbatch_count)
      : stage_count_(stage_count),
        microbatch_count_(static_cast<size_t>(microbatch_count)),
        forward_(stage_count * microbatch_count_),
        backward_(stage_count * microbatch_count_) {}

  bool has_input(const Action& action) const {
    if (action.type == ActionType::kForward) {
      return action.stage == 0 || forward_[index(action.stage - 1, action.microbatch)];
    }
    return action.type == ActionType::kBackwardWeight ||
           static_cast<size_t>(action.stage) + 1 == stage_count_ ||
           backward_[index(action.stage + 1, action.microbatch)];
  }

  /// The stage that takes the output of `action`, now there; -1 if it has none.
  int32_t add_output_of(const Action& action) {
    if (action.type == ActionType::kBackwardWeight) return -1;
    const bool is_forward = action.type == ActionType::kForward;
    (is_forward ? forward_ : backward_)[index(action.stage, action.microbatch)] = true;
    const int32_t taker = is_forward ? action.stage + 1 : action.stage - 1;
    return static_cast<size_t>(taker) == stage_count_ ? -1 : taker;
  }

 private:
  size_t index(int32_t stage, int32_t microbatch) const {
    return static_cast<size_t>(stage) * microbatch_count_ + static_cast<size_t>(microbatch);
  }

  size_t stage_count_;
  size_t microbatch_count_;
  std::vector<bool> forward_;
  std::vector<bool> backward_;
};

}  // namespace

std::vector<size_t> walk_schedule(const Schedule& schedule,
                                  const std::vector<int32_t>& rank_of_stage,
                                  int32_t microbatch_count,
                                  const std::function<void(size_t, const Action&)>& visit) {
  Outputs outputs(rank_of_stage.size(), microbatch_count);
  std::vector<size_t> next(schedule.size(), 0);
  // Ranks whose next action may have become possible. An output adds at most one.
  std::vector<size_t> open;
  for (size_t rank = schedule.size(); rank-- > 0;) open.push_back(rank);
  std::vector<bool> is_open(schedule.size(), true);
  while (!open.empty()) {
    const size_t rank = open.back();
    open.pop_back();
    is_open[rank] = false;
    const ActionList& actions = schedule[rank];
    while (next[rank] < actions.size() && outputs.has_input(actions[next[rank]])) {
      const Action& action = actions[next[rank]++];
      visit(rank, action);
      const int32_t taker = outputs.add_output_of(action);
      if (taker < 0) continue;
      const auto waiting = static_cast<size_t>(rank_of_stage[static_cast<size_t>(taker)]);
      if (waiting == rank || is_open[waiting]) continue;
      is_open[waiting] = true;
      open.push_back(waiting);
    }
  }
  return next;
}

}  // namespace skein::plans
