#pragma once

#include <cstdint>

#include "plans/base/ids.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::sim {

/// What the models of the worker's part take of a simulated device. `passes_in_flight`: as the mode
/// of the plan says.
int64_t part_bytes(const plans::JobSpec& job, int32_t passes_in_flight, const plans::PlanPart& part,
                   plans::WorkerId worker);

/// The least memory of each of so many workers with which they can train the job, in any mode that
/// it may be in; where the planner chooses, to within a tenth. 0: there is no plan for them.
int64_t least_device_bytes(const plans::JobSpec& job, int64_t worker_count);

}  // namespace skein::sim
