#pragma once

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "plans/schedule/schedule.hpp"

namespace skein::plans {

/// What an execution of lists looked like.
struct Execution {
  bool is_complete = false;  // False: deadlock.
  double makespan_us = 0;
  std::vector<double> first_us;  // [R] start of the first action.
  std::vector<double> last_us;   // [R] end of the last action.
  std::vector<double> busy_us;   // [R]
  /// Idle time of a rank between its first and its last action.
  double idle_us(size_t rank) const { return last_us[rank] - first_us[rank] - busy_us[rank]; }
};

/// Executes lists the slow and obvious way, apart from the code under test: again and again over
/// all ranks, an action starts when its rank is free and its input has arrived.
inline Execution execute(const Schedule& schedule, const ScheduleShape& shape,
                         const ScheduleCosts& costs = {}) {
  const size_t R = schedule.size();
  const int32_t S = shape.stage_count();
  Execution run{true, 0, std::vector<double>(R, -1), std::vector<double>(R, 0),
                std::vector<double>(R, 0)};
  std::map<std::tuple<bool, int32_t, int32_t>, double> made_us;  // Backward?, stage, micro-batch.
  std::vector<size_t> next(R, 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t r = 0; r < R; ++r) {
      for (; next[r] < schedule[r].size(); ++next[r], progress = true) {
        const auto [s, type, m] = schedule[r][next[r]];
        const bool is_forward = type == ActionType::kForward;
        const int32_t from = is_forward ? s - 1 : s + 1;
        double start_us = run.last_us[r];
        if (type != ActionType::kBackwardWeight && from >= 0 && from < S) {
          const auto made = made_us.find({!is_forward, from, m});
          if (made == made_us.end()) break;
          const bool travels = shape.rank_of_stage[from] != shape.rank_of_stage[s];
          const double hop_us =
              travels && !costs.transfer_us.empty() ? costs.transfer_us[std::min(s, from)] : 0;
          start_us = std::max(start_us, made->second + hop_us);
        }
        const StageTimes times = costs.stage_times.empty() ? StageTimes{} : costs.stage_times[s];
        double took_us = is_forward ? times.forward_us : 0;
        if (type == ActionType::kBackward || type == ActionType::kBackwardInput) {
          took_us += times.backward_input_us;
        }
        if (type == ActionType::kBackward || type == ActionType::kBackwardWeight) {
          took_us += times.backward_weight_us;
        }
        if (run.first_us[r] < 0) run.first_us[r] = start_us;
        run.last_us[r] = start_us + took_us;
        run.busy_us[r] += took_us;
        run.makespan_us = std::max(run.makespan_us, run.last_us[r]);
        if (type != ActionType::kBackwardWeight) made_us[{!is_forward, s, m}] = run.last_us[r];
      }
    }
  }
  for (size_t r = 0; r < R; ++r) run.is_complete &= next[r] == schedule[r].size();
  return run;
}

}  // namespace skein::plans
