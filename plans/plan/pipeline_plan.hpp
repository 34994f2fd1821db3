#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// A plan of pipeline replicas of the job's pipeline, as many as there are workers for: replica c
/// of every stage belongs to pipeline replica c, and has the rows of it. A pipeline replica's
/// samples of one iteration are the same however many pipeline replicas there are; so a micro-batch
/// of the plan has as many rows as it has pipeline replicas times that. With fewer workers than the
/// pipeline has stages: one pipeline replica of fewer stages. InvalidArgument   as
/// `make_layout_plan` and `check_tied_embedding`.
absl::StatusOr<Plan> make_pipeline_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                                        uint64_t generation);

/// Pipeline replicas and stages of such a plan.
PipelineLayout pipeline_layout(const Plan& plan);

/// Rows of each micro-batch of one pipeline replica: a micro-batch of the job's, shared out to the
/// job's pipeline replicas. Where it cannot be in equal parts, they are the next smaller ones that
/// it is a multiple of, so that iterations fill a step whole; there are more of them then. The
/// planner may give unlike pipeline replicas more or fewer (`PipelineCuts::rows`).
int64_t pipeline_rows(const JobSpec& job);
/// Samples of one iteration of a pipeline replica with those rows.
uint64_t pipeline_samples(const JobSpec& job);

}  // namespace skein::plans
