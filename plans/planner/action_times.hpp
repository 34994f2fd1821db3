#pragma once

#include <vector>

#include "plans/plan/plan.hpp"
#include "plans/planner/measured_request.hpp"

namespace skein::plans {

/// What the actions of each stage take on the slowest of its replicas, by what the workers have
/// measured; not known where one of them has not. A backward that runs the forward again takes as
/// much longer.
/// Returns  [S]
std::vector<ActionTimes> action_times(const Plan& plan, const std::vector<MeasuredWorker>& workers);

}  // namespace skein::plans
