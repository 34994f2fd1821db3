#pragma once

#include <cstdint>
#include <vector>

#include "plans/stragglers/speed_watch.hpp"

namespace skein::plans {

/// When to do something about workers that have become slower or faster. On a machine that is now
/// slow and now fast, each change of plan makes the next one wait twice as long, from 16 steps to
/// 512, until there is quiet for four of these intervals.
class MitigationPace {
 public:
  void on_changes(const std::vector<SpeedChange>& changes);
  /// What has changed since the last time; nothing as long as the last mitigation is too young.
  std::vector<SpeedChange> take(uint64_t steps_done);
  /// The plan is changed for what was taken.
  void on_mitigation(uint64_t steps_done);

 private:
  static constexpr uint64_t kIntervalMin = 16;  // Steps.
  static constexpr uint64_t kIntervalMax = 512;
  static constexpr uint64_t kQuietIntervals = 4;

  std::vector<SpeedChange> changes_;
  uint64_t next_step_ = 0;  // Not before so many steps are done.
  uint64_t interval_ = kIntervalMin;
};

}  // namespace skein::plans
