#pragma once

#include <vector>

#include "absl/status/status.h"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// Sets what follows, in a plan by tokens, from the workers of its stages. Replicas stand in the
/// order of their workers' numbers. Each worker is a rank of its own, in the same order. Nobody
/// follows its list of actions, as workers compute what they are granted: it says what a worker may
/// have to keep, which is every token of its stages at once.
void set_token_lists(Plan& plan);

/// The groups of a plan by tokens. A tied embedding is one parameter of the first stage: who has
/// the last one, too, adds up both uses before the first stage's replicas add up theirs.
std::vector<ReductionGroup> token_groups(const std::vector<StagePlan>& stages, bool tied_head);

/// InvalidArgument   if it is not what `set_token_lists` makes of the plan.
absl::Status check_token_lists(const Plan& plan);

}  // namespace skein::plans
