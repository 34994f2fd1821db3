#include "plans/stragglers/mitigation_pace.hpp"

#include <algorithm>
#include <utility>

namespace skein::plans {

void MitigationPace::on_changes(const std::vector<SpeedChange>& changes) {
  changes_.insert(changes_.end(), changes.begin(), changes.end());
}

std::vector<SpeedChange> MitigationPace::take(uint64_t steps_done) {
  if (steps_done < next_step_) return {};
  return std::exchange(changes_, {});
}

void MitigationPace::on_mitigation(uint64_t steps_done) {
  if (steps_done > next_step_ + kQuietIntervals * interval_) interval_ = kIntervalMin;
  next_step_ = steps_done + interval_;
  interval_ = std::min(2 * interval_, kIntervalMax);
}

}  // namespace skein::plans
