#include "plans/schedule/greedy_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Micro-batches pass each of F, I and W of a stage in their order, so counters say it all.
struct StageState {
  int32_t forwards = 0;
  int32_t inputs = 0;
  int32_t weights = 0;
  int32_t ahead = 0;  // Forwards without their I that keep it busy, see `keeps_ahead`.
  std::vector<double> forward_ready_us;   // [M] when the input of F is there.
  std::vector<double> backward_ready_us;  // [M] when the gradient for I is there.
};

struct RankState {
  std::vector<int32_t> stages;  // Ascending.
  double free_us = 0;
  int32_t oldest = 0;       // Lowest micro-batch that is not finished on this rank.
  int64_t other_bytes = 0;  // Stashes of all others.
  int64_t other_limit = 0;  // What they may grow to: the limit less one whole micro-batch.
};

class GreedyScheduler {
 public:
  GreedyScheduler(const ScheduleShape& shape, const ScheduleCosts& costs, const GreedyRule& rule)
      : shape_(shape),
        costs_(costs),
        rule_(rule),
        stages_(shape.rank_of_stage.size()),
        ranks_(static_cast<size_t>(shape.rank_count())) {
    const auto M = static_cast<size_t>(shape.microbatch_count);
    for (size_t s = 0; s < stages_.size(); ++s) {
      rank_of(s).stages.push_back(static_cast<int32_t>(s));
      stages_[s].forward_ready_us.assign(M, s == 0 ? 0 : kNever);
      stages_[s].backward_ready_us.assign(M, s + 1 == stages_.size() ? 0 : kNever);
    }
    const std::vector<int64_t> whole = microbatch_bytes(shape, costs);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].other_limit = costs.limit_bytes[r] - whole[r];
    }
    result_.schedule.resize(ranks_.size());
    set_ahead();
  }

  TimedSchedule run() {
    for (size_t r = 0; r < ranks_.size(); ++r) wakes_.push({0, r});
    while (!wakes_.empty()) {
      const auto [now_us, r] = wakes_.top();
      wakes_.pop();
      if (ranks_[r].free_us > now_us) continue;  // It is woken again when it is free.
      if (const std::optional<Action> action = choose(ranks_[r], now_us)) {
        start(r, *action, now_us);
      }
    }
    return std::move(result_);
  }

 private:
  RankState& rank_of(size_t stage) {
    return ranks_[static_cast<size_t>(shape_.rank_of_stage[stage])];
  }
  StageState& at(int32_t stage) { return stages_[static_cast<size_t>(stage)]; }
  int64_t bytes(int32_t stage) const { return costs_.stash_bytes[static_cast<size_t>(stage)]; }

  /// A stage's gradient comes back after F and I of all stages behind it; meanwhile the busiest
  /// rank takes a micro-batch every `period_us`.
  void set_ahead() {
    std::vector<double> work_us(ranks_.size(), 0);
    for (size_t s = 0; s < stages_.size(); ++s) {
      const StageTimes& times = costs_.stage_times[s];
      work_us[static_cast<size_t>(shape_.rank_of_stage[s])] +=
          times.forward_us + times.backward_input_us;
    }
    const double period_us = *std::max_element(work_us.begin(), work_us.end());
    double back_us = 0;
    for (size_t s = stages_.size(); s-- > 0;) {
      const StageTimes& times = costs_.stage_times[s];
      back_us += times.forward_us + times.backward_input_us;
      if (s + 1 < stages_.size()) back_us += 2 * costs_.transfer_us[s];
      const double ahead = period_us > 0 ? std::ceil(back_us / period_us) : 1;
      stages_[s].ahead =
          static_cast<int32_t>(std::clamp<double>(ahead, 1, shape_.microbatch_count));
    }
  }

  bool has_room(const RankState& rank, int32_t stage, int32_t microbatch) const {
    return microbatch == rank.oldest || bytes(stage) <= rank.other_limit - rank.other_bytes;
  }
  /// When the next I of a stage can run, as far as is known.
  double input_us(int32_t s) {
    const StageState& stage = at(s);
    return stage.inputs == stage.forwards
               ? kNever
               : stage.backward_ready_us[static_cast<size_t>(stage.inputs)];
  }
  /// When the next F of a stage can run if there is room, as far as is known.
  double forward_us(int32_t s) {
    const StageState& stage = at(s);
    return stage.forwards == shape_.microbatch_count
               ? kNever
               : stage.forward_ready_us[static_cast<size_t>(stage.forwards)];
  }

  std::optional<Action> choose(const RankState& rank, double now_us) {
    std::optional<Action> chosen;
    if (rule_.keeps_ahead) chosen = choose_to_keep_ahead(rank, now_us);
    if (!chosen) chosen = choose_input(rank, now_us);
    if (!chosen) chosen = choose_forward(rank, now_us);
    if (chosen) return chosen;
    chosen = choose_weight(rank);
    if (chosen && rule_.waits && arrival_us(rank) < now_us + duration_us(*chosen)) return {};
    return chosen;
  }

  /// An F of a stage that is not far enough ahead, or a W that makes room for it.
  std::optional<Action> choose_to_keep_ahead(const RankState& rank, double now_us) {
    for (size_t i = rank.stages.size(); i-- > 0;) {
      const int32_t s = rank.stages[i];
      const StageState& stage = at(s);
      if (forward_us(s) > now_us || stage.forwards - stage.inputs >= stage.ahead) continue;
      if (has_room(rank, s, stage.forwards)) {
        return Action{s, ActionType::kForward, stage.forwards};
      }
      if (std::optional<Action> weight = choose_weight(rank)) return weight;
    }
    return {};
  }

  std::optional<Action> choose_input(const RankState& rank, double now_us) {
    for (int32_t s : rank.stages) {
      if (input_us(s) <= now_us) return Action{s, ActionType::kBackwardInput, at(s).inputs};
    }
    return {};
  }

  std::optional<Action> choose_forward(const RankState& rank, double now_us) {
    for (size_t i = rank.stages.size(); i-- > 0;) {
      const int32_t s = rank.stages[i];
      const StageState& stage = at(s);
      const bool may_run = !rule_.keeps_ahead || stage.forwards - stage.inputs < stage.ahead ||
                           stage.forwards == rank.oldest;
      if (may_run && forward_us(s) <= now_us && has_room(rank, s, stage.forwards)) {
        return Action{s, ActionType::kForward, stage.forwards};
      }
    }
    return {};
  }

  /// When the next I or F that the rank may run arrives, as far as is known.
  double arrival_us(const RankState& rank) {
    double first_us = kNever;
    for (int32_t s : rank.stages) {
      first_us = std::min(first_us, input_us(s));
      const bool is_ahead = rule_.keeps_ahead && at(s).forwards - at(s).inputs >= at(s).ahead;
      if (!is_ahead && has_room(rank, s, at(s).forwards)) {
        first_us = std::min(first_us, forward_us(s));
      }
    }
    return first_us;
  }

  std::optional<Action> choose_weight(const RankState& rank) {
    std::optional<Action> found;
    for (size_t i = rank.stages.size(); i-- > 0;) {
      const int32_t s = rank.stages[i];
      const StageState& stage = at(s);
      if (stage.weights < stage.inputs && (!found || stage.weights < found->microbatch)) {
        found = Action{s, ActionType::kBackwardWeight, stage.weights};
      }
    }
    return found;
  }

  double duration_us(const Action& action) const {
    const StageTimes& times = costs_.stage_times[static_cast<size_t>(action.stage)];
    if (action.type == ActionType::kForward) return times.forward_us;
    return action.type == ActionType::kBackwardInput ? times.backward_input_us
                                                     : times.backward_weight_us;
  }

  void start(size_t r, const Action& action, double now_us) {
    RankState& rank = ranks_[r];
    const double end_us = now_us + duration_us(action);
    rank.free_us = end_us;
    result_.schedule[r].push_back(action);
    result_.makespan_us = std::max(result_.makespan_us, end_us);
    const auto s = static_cast<size_t>(action.stage);
    const auto m = static_cast<size_t>(action.microbatch);
    if (action.type == ActionType::kForward) {
      ++stages_[s].forwards;
      if (action.microbatch != rank.oldest) rank.other_bytes += bytes(action.stage);
      if (s + 1 < stages_.size()) {
        deliver(s + 1, stages_[s + 1].forward_ready_us[m], end_us + costs_.transfer_us[s]);
      } else {
        stages_[s].backward_ready_us[m] = end_us;
      }
    } else if (action.type == ActionType::kBackwardInput) {
      ++stages_[s].inputs;
      if (s > 0) {
        deliver(s - 1, stages_[s - 1].backward_ready_us[m], end_us + costs_.transfer_us[s - 1]);
      }
    } else {
      ++stages_[s].weights;
      free_stash(rank, action);
    }
    wakes_.push({end_us, r});
  }

  void deliver(size_t stage, double& ready_us, double arrival_us) {
    ready_us = arrival_us;
    wakes_.push({arrival_us, static_cast<size_t>(shape_.rank_of_stage[stage])});
  }

  /// A stash goes with its W; the room counts from the start of the W, as nothing else can start
  /// on the rank before its end.
  void free_stash(RankState& rank, const Action& action) {
    if (action.microbatch != rank.oldest) rank.other_bytes -= bytes(action.stage);
    auto is_finished = [&](int32_t s) { return at(s).weights > rank.oldest; };
    while (rank.oldest < shape_.microbatch_count &&
           std::all_of(rank.stages.begin(), rank.stages.end(), is_finished)) {
      ++rank.oldest;
      for (int32_t s : rank.stages) {
        const bool is_held = at(s).forwards > rank.oldest && at(s).weights <= rank.oldest;
        if (is_held) rank.other_bytes -= bytes(s);
      }
    }
  }

  using Wake = std::pair<double, size_t>;  // Time and rank.

  const ScheduleShape& shape_;
  const ScheduleCosts& costs_;
  GreedyRule rule_;
  std::vector<StageState> stages_;
  std::vector<RankState> ranks_;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
  TimedSchedule result_;
};

}  // namespace

absl::StatusOr<TimedSchedule> greedy_schedule(const ScheduleShape& shape,
                                              const ScheduleCosts& costs, const GreedyRule& rule) {
  SKEIN_RETURN_IF_ERROR(check_one_fits(shape, costs));
  TimedSchedule timed = GreedyScheduler(shape, costs, rule).run();
  size_t actions = 0;
  for (const ActionList& list : timed.schedule) actions += list.size();
  const auto expected =
      3 * shape.rank_of_stage.size() * static_cast<size_t>(shape.microbatch_count);
  SKEIN_CHECK(actions == expected) << actions << " of " << expected << " actions are scheduled";
  return timed;
}

absl::StatusOr<TimedSchedule> greedy_schedule(const ScheduleShape& shape,
                                              const ScheduleCosts& costs) {
  constexpr GreedyRule kRules[] = {{.waits = false, .keeps_ahead = false},
                                   {.waits = true, .keeps_ahead = false},
                                   {.waits = false, .keeps_ahead = true},
                                   {.waits = true, .keeps_ahead = true}};
  std::optional<TimedSchedule> best;
  for (const GreedyRule& rule : kRules) {
    SKEIN_ASSIGN_OR_RETURN(TimedSchedule timed, greedy_schedule(shape, costs, rule));
    if (!best || timed.makespan_us < best->makespan_us) best = std::move(timed);
  }
  return *std::move(best);
}

}  // namespace skein::plans
