#include "plans/planner/candidate_timing.hpp"

#include <algorithm>

#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

double action_us(const StageCost& cost, ActionType type) {
  switch (type) {
    case ActionType::kForward:
      return cost.forward_us;
    case ActionType::kBackward:
      return cost.backward_us;
    case ActionType::kBackwardInput:
      return cost.input_us;
    case ActionType::kBackwardWeight:
      return cost.weight_us;
  }
  return 0;
}

/// What a rank does next and when it is free.
struct RankState {
  size_t next = 0;
  double free_us = 0;
};

/// One play of the lists of a candidate plan.
class Play {
 public:
  Play(const CandidatePlan& candidate, const CandidateCost& cost, const Schedule& lists,
       size_t microbatch_count, double overhead_us)
      : rank_of_stage_(candidate.rank_of_stage),
        cost_(cost),
        lists_(lists),
        S_(cost.stages.size()),
        M_(microbatch_count),
        overhead_us_(overhead_us),
        ranks_(lists.size()),
        activation_us_(S_ * M_, -1.0),
        gradient_us_(S_ * M_, -1.0),
        out_free_us_(2 * lists.size(), 0.0),
        last_backward_us_(S_, 0.0) {
    std::fill_n(activation_us_.begin(), M_, 0.0);
    std::fill_n(gradient_us_.end() - static_cast<std::ptrdiff_t>(M_), M_, 0.0);
  }

  /// Up, where forwards go, and down, where backwards go, until nobody moves.
  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) moved |= run_rank(rank);
      for (size_t rank = ranks_.size(); rank-- > 0;) moved |= run_rank(rank);
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      SKEIN_CHECK(ranks_[rank].next == lists_[rank].size()) << "rank " << rank << " is stuck";
    }
  }

  double end_us(double commit_us) const {
    double reduced_us =
        std::max(last_backward_us_.front(), last_backward_us_.back()) + cost_.tied.total_us();
    double update_us = 0;
    for (size_t s = 0; s < S_; ++s) {
      reduced_us = std::max(reduced_us, last_backward_us_[s] + cost_.stages[s].tail_us);
      update_us = std::max(update_us, cost_.stages[s].update_us);
    }
    return reduced_us + commit_us + update_us;
  }

 private:
  /// As far as the inputs are known; true if it did anything.
  bool run_rank(size_t rank) {
    RankState& state = ranks_[rank];
    const size_t before = state.next;
    for (; state.next < lists_[rank].size(); ++state.next) {
      const Action& action = lists_[rank][state.next];
      const size_t at =
          static_cast<size_t>(action.stage) * M_ + static_cast<size_t>(action.microbatch);
      const double input_us = arrival_us(action.type, at);
      if (input_us < 0) break;
      const StageCost& cost = cost_.stages[static_cast<size_t>(action.stage)];
      state.free_us =
          std::max(input_us, state.free_us) + overhead_us_ + action_us(cost, action.type);
      finish(action, at, state.free_us);
    }
    return state.next > before;
  }

  double arrival_us(ActionType type, size_t at) const {
    if (type == ActionType::kForward) return activation_us_[at];
    return type == ActionType::kBackwardWeight ? 0 : gradient_us_[at];
  }

  void finish(const Action& action, size_t at, double now_us) {
    const auto stage = static_cast<size_t>(action.stage);
    if (action.type == ActionType::kForward) {
      if (stage + 1 < S_) activation_us_[at + M_] = send(stage, stage, now_us);
      return;
    }
    if (action.type != ActionType::kBackwardInput) last_backward_us_[stage] = now_us;
    if (action.type != ActionType::kBackwardWeight && stage > 0) {
      gradient_us_[at - M_] = send(stage - 1, stage, now_us);
    }
  }

  /// When what stage `from` has ready at `now_us` has passed the cut. What a rank sends both ways
  /// shares its port or card.
  double send(size_t cut, size_t from, double now_us) {
    const CutCost& cost = cost_.cuts[cut];
    const auto rank = static_cast<size_t>(rank_of_stage_[from]);
    double& free_us = out_free_us_[2 * rank + (cost.crosses_hosts ? 1 : 0)];
    free_us = std::max(now_us, free_us) + cost.bytes_us;
    return free_us + cost.latency_us;
  }

  const std::vector<int32_t>& rank_of_stage_;
  const CandidateCost& cost_;
  const Schedule& lists_;
  size_t S_;
  size_t M_;
  double overhead_us_;
  std::vector<RankState> ranks_;
  std::vector<double> activation_us_;  // [S * M] arrival; < 0: not known yet.
  std::vector<double> gradient_us_;
  std::vector<double> out_free_us_;  // Inside rank r's host 2 r, to other hosts 2 r + 1.
  std::vector<double> last_backward_us_;
};

/// Never more than a play gives: every rank does all its work, and with one stage per rank not
/// before the first activation is there and the last gradient is back at the first stage.
double least_played_us(const CandidatePlan& candidate, const CandidateCost& cost,
                       int64_t microbatch_count) {
  const auto M = static_cast<double>(microbatch_count);
  const bool is_straight = candidate.ranks.size() == cost.stages.size();
  std::vector<double> busy_us(candidate.ranks.size(), 0);
  double ahead_us = 0;
  double least_us = M * cost.card_us;
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    double& own_us = busy_us[static_cast<size_t>(candidate.rank_of_stage[s])];
    own_us += M * cost.stages[s].cycle_us();
    const double tail_us = is_straight && ahead_us == 0 ? cost.stages[s].tail_us : 0;
    least_us = std::max(least_us, own_us + tail_us + (is_straight ? ahead_us : 0));
    ahead_us += cost.stages[s].cycle_us();
    if (s < cost.cuts.size()) ahead_us += 2 * cost.cuts[s].total_us();
  }
  return least_us;
}

}  // namespace

absl::StatusOr<double> CandidateTiming::step_us_below(const CandidatePlan& candidate,
                                                      double cutoff_us) {
  const PlanRequest& request = model_.request();
  const CandidateCost cost = model_.cost(candidate);
  work_ += model_.sums().layer_count();
  for (const CandidateRank& rank : candidate.ranks)
    work_ += static_cast<int64_t>(rank.devices.size());
  const int64_t count = request.global_batch_rows / candidate.microbatch_rows;
  const double bound_us = least_played_us(candidate, cost, count);
  if (bound_us >= cutoff_us) return bound_us;
  SKEIN_ASSIGN_OR_RETURN(const std::shared_ptr<const Schedule> lists,
                         schedules_.lists(candidate, cost));
  Play play(candidate, cost, *lists, static_cast<size_t>(count),
            request.simulation.action_overhead_us);
  play.run();
  work_ += 2 * count * candidate.stage_count();
  return std::max(play.end_us(request.simulation.commit_us),
                  static_cast<double>(count) * cost.card_us);
}

double least_step_us(const CandidatePlan& candidate, CostModel& model) {
  std::vector<double> busy_us(model.cluster().devices.size(), 0);
  for (int32_t s = 0; s < candidate.stage_count(); ++s) {
    const CandidateRank& rank = candidate.rank(s);
    for (size_t r = 0; r < rank.devices.size(); ++r) {
      const LayerTimes times = model.sums().times(candidate.layers(s), rank.rows[r]);
      const double again_us = candidate.recompute ? times.forward_us : 0;
      busy_us[static_cast<size_t>(rank.devices[r])] +=
          (times.total_us() + again_us) / model.speed(rank.devices[r]);
    }
  }
  const int64_t count = model.request().global_batch_rows / candidate.microbatch_rows;
  return static_cast<double>(count) * *std::max_element(busy_us.begin(), busy_us.end());
}

}  // namespace skein::plans
