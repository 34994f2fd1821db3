#pragma once

#include <cstdint>
#include <vector>

#include "plans/coordinator/stage_sync.hpp"
#include "plans/modes/training_mode.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// What the reports of one step's replicas add up to. `stages`: of the plan, all complete.
CommitTotals step_totals(const Plan& plan, const std::vector<StageSync>& stages, uint64_t end_step);

}  // namespace skein::plans
