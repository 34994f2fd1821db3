#pragma once

#include "absl/status/statusor.h"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// The planner as DAPPLE released it (HPGO, orchestrate.rs and sync_pipeline.rs), which is not the
/// paper's: pipelines that minimise the slowest block (stage time over replicas, or transfer), for
/// every number i of devices with P / i copies of the pipeline, plus the straight and all two-stage
/// pipelines, ranked by
///   block * (M - 1) + total + transfers + max over stages of max(0, all-reduce - i * block).
/// Differs: bandwidths are the cluster's, not constants. The memo is keyed by devices in use per
/// host. Copies of a pipeline take the devices host by host. `M` micro-batches are shared by the
/// copies, each taking its rows. Plans that lack a row per replica or memory are passed over.
/// InvalidArgument   beyond its budget of steps.
absl::StatusOr<PlannedPipeline> plan_dapple_released(const PlanRequest& request);

}  // namespace skein::plans
