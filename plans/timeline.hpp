#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/schedule.hpp"

namespace skein::plans {

/// Time of one action of a stage for one micro-batch, in microseconds.
struct StageTimes {
  double forward_us = 0;
  double backward_us = 0;
};

struct TimelineSlot {
  Action action;
  double start_us = 0;
  double end_us = 0;
};

struct Timeline {
  std::vector<std::vector<TimelineSlot>> stages;
  double makespan_us = 0;
  /// Share of stage-time that is idle: 1 - busy / (S * makespan).
  double bubble() const;
};

/// Executes the action lists: an action starts when its stage is free and its input is there, an
/// input travels for `transfer_us` between stages.
/// InvalidArgument   if the lists cannot be executed (see `validate_schedule`).
absl::StatusOr<Timeline> execute_schedule(const std::vector<std::vector<Action>>& stages,
                                          const std::vector<StageTimes>& times, double transfer_us);

}  // namespace skein::plans
