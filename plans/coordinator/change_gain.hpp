#pragma once

#include "plans/coordinator/planner_questions.hpp"

namespace skein::plans {

/// A plan that the planner chose must be predicted to be faster by enough to be worth a change:
/// one of pipeline replicas, with workers that stall as the request says. A layout is better if it
/// uses more workers.
bool is_worthwhile(const ChangeQuestion& question, const Plan& candidate);

}  // namespace skein::plans
