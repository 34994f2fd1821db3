#pragma once

#include "plans/schedule/schedule_shape.hpp"

namespace skein::plans {

/// Time from the first to the last action of a valid schedule of `shape`: the longest path through
/// the lists, where links carry any number of transfers at once. What generators compare candidates
/// by; plans are judged by the simulator. `costs` is written out. O(actions).
double makespan_us(const Schedule& schedule, const ScheduleShape& shape,
                   const ScheduleCosts& costs);

}  // namespace skein::plans
