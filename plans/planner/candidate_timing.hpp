#pragma once

#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "plans/planner/candidate_cost.hpp"
#include "plans/planner/candidate_plan.hpp"
#include "plans/planner/candidate_schedule.hpp"

namespace skein::plans {

/// Predicts the step time of candidate plans: plays their action lists with one machine per rank
/// that sends one tensor after another, which is close to what `simulate` does where all replicas
/// of a rank are equally busy; where several ranks share a host's card, with no less than the card
/// needs. Much cheaper than that. Not thread-safe: keeps lists.
class CandidateTiming {
 public:
  explicit CandidateTiming(CostModel& model) : model_(model), schedules_(model) {}

  /// InvalidArgument     if the schedule is not made for the candidate plan's shape.
  /// ResourceExhausted   if the candidate plan does not fit its devices.
  absl::StatusOr<double> step_us(const CandidatePlan& candidate) {
    return step_us_below(candidate, kAny);
  }
  /// The same, but anything that is at least `cutoff_us` if the candidate plan is known to take so
  /// long without playing it: a search does not ask how much worse a bad candidate plan is.
  absl::StatusOr<double> step_us_below(const CandidatePlan& candidate, double cutoff_us);

  CostModel& model() { return model_; }
  /// Actions played, layers and replicas priced so far: what a search's budget counts.
  int64_t work() const { return work_; }

 private:
  static constexpr double kAny = std::numeric_limits<double>::infinity();

  CostModel& model_;
  CandidateSchedules schedules_;
  int64_t work_ = 0;
};

/// Never more than `simulate` gives a step where nothing makes a device faster than its speed: the
/// work of the busiest device.
double least_step_us(const CandidatePlan& candidate, CostModel& model);

}  // namespace skein::plans
