#pragma once

#include "absl/status/statusor.h"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// All devices hold the whole model and split every micro-batch; the gradients are reduced once a
/// step, in buckets that overlap the last backward if the request's simulation does so (Li et al.,
/// PyTorch Distributed, VLDB'20, section 3.2).
/// Differs: takes the smallest number of rows of the request that gives each device one.
absl::StatusOr<PlannedPipeline> plan_data_parallel(const PlanRequest& request);

}  // namespace skein::plans
