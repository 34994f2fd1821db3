#pragma once

#include <cstdint>
#include <vector>

#include "plans/planner/candidate_cost.hpp"
#include "plans/planner/candidate_plan.hpp"

namespace skein::plans {

/// Stages made of runs of an order of devices, for one number of stages: runs of about the same
/// speed in sum, and runs of the same number of devices, as they are and ending where hosts do; the
/// layers then follow the runs' speeds
/// (`balanced_cuts`). For numbers of stages that `partitions_of_order` is too coarse for.
/// `stages` in 1..min(L, devices). Empty where a run has more devices than a micro-batch rows.
std::vector<CandidatePlan> grouped_stages(CostModel& model, const std::vector<int32_t>& order,
                                          int64_t rows, int64_t stages);

/// The same ranks with `per_rank` stages on each: in loops (stage s on rank s mod R), or with the
/// odd rounds backwards. The layers follow the speeds of the ranks. Empty cuts if there are too few
/// layers. `candidate` has one stage per rank.
CandidatePlan with_virtual_stages(CostModel& model, const CandidatePlan& candidate,
                                  int32_t per_rank, bool folds);

/// Sets the cuts of the candidate plan anew so that the slowest rank's stages are as fast as
/// possible.
void rebalance(CostModel& model, CandidatePlan& candidate);

}  // namespace skein::plans
