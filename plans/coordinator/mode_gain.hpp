#pragma once

#include "plans/coordinator/planner_questions.hpp"

namespace skein::plans {

/// Progress a second of a planned job by both modes, if workers go on as in the question's last
/// steps: the plan in force, and the planner's for the other mode.
///
/// Together, a step takes the mean of what the simulator says with each worker as slow as it was in
/// each of these steps. Apart, so do iterations of the pipeline replicas; their typical times and
/// stalls go into the simulation of the policy (`predict_progress`). 0 for a mode that no plan is
/// possible in.
/// Cost   a plan, and for each of the steps a simulation of a plan and of all pipeline replicas.
ModeAnswer answer(const ModeQuestion& question);

}  // namespace skein::plans
