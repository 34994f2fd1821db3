#include "plans/schedule/schedule_makespan.hpp"

#include <algorithm>

#include "plans/base/check.hpp"
#include "plans/schedule/walk_schedule.hpp"

namespace skein::plans {
namespace {

double duration_us(const StageTimes& times, ActionType type) {
  switch (type) {
    case ActionType::kForward:
      return times.forward_us;
    case ActionType::kBackward:
      return times.backward_input_us + times.backward_weight_us;
    case ActionType::kBackwardInput:
      return times.backward_input_us;
    case ActionType::kBackwardWeight:
      return times.backward_weight_us;
  }
  return 0;
}

}  // namespace

double makespan_us(const Schedule& schedule, const ScheduleShape& shape,
                   const ScheduleCosts& costs) {
  const size_t S = shape.rank_of_stage.size();
  const auto M = static_cast<size_t>(shape.microbatch_count);
  // When inputs of F and B are there; the first F and last B need none.
  std::vector<double> forward_us(S * M, 0);
  std::vector<double> backward_us(S * M, 0);
  std::vector<double> free_us(schedule.size(), 0);
  size_t seen = 0;
  walk_schedule(schedule, shape.rank_of_stage, shape.microbatch_count,
                [&](size_t rank, const Action& action) {
                  const auto s = static_cast<size_t>(action.stage);
                  const size_t at = s * M + static_cast<size_t>(action.microbatch);
                  double start_us = free_us[rank];
                  if (action.type == ActionType::kForward) {
                    start_us = std::max(start_us, forward_us[at]);
                  } else if (action.type != ActionType::kBackwardWeight) {
                    start_us = std::max(start_us, backward_us[at]);
                  }
                  const double end_us = start_us + duration_us(costs.stage_times[s], action.type);
                  free_us[rank] = end_us;
                  if (action.type == ActionType::kForward && s + 1 < S) {
                    forward_us[at + M] = end_us + costs.transfer_us[s];
                  } else if (action.type != ActionType::kForward &&
                             action.type != ActionType::kBackwardWeight && s > 0) {
                    backward_us[at - M] = end_us + costs.transfer_us[s - 1];
                  }
                  ++seen;
                });
  size_t expected = 0;
  for (const ActionList& actions : schedule) expected += actions.size();
  SKEIN_CHECK(seen == expected) << seen << " of " << expected << " actions can run";
  return *std::max_element(free_us.begin(), free_us.end());
}

}  // namespace skein::plans
