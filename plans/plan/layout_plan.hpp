#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// Plans by the explicit or even layout of the job, workers in ascending order, rank by rank.
/// The even layout is `partition_min_max` over `layer_flops`. With parallelism.virtual_stages = v,
/// R ranks hold v stages each: stage s is on rank s mod R.
/// InvalidArgument   if the layout does not fit the model, or the replicas do not fit the workers
///                   (there must be at least as many workers as replicas) or a micro-batch has
///                   fewer rows than a stage has replicas. The message says what would fit.
absl::StatusOr<Plan> make_layout_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                                      uint64_t generation,
                                      const std::string& mode = kSynchronousMode);

/// The layers of each stage: those of `parallelism.layout`, or so many stages, even by cost.
/// InvalidArgument   if the layout does not fit the model.
absl::StatusOr<std::vector<LayerRange>> layer_ranges(const JobSpec& job, int64_t stages);

/// How many workers the layout of `job` needs; `available` decides what the job leaves open
/// (pipeline_parallel_degree 0).
absl::StatusOr<int64_t> layout_worker_count(const JobSpec& job, int64_t available);

/// InvalidArgument if a plan made elsewhere is broken, or is not for this model or batch.
absl::Status check_plan(const JobSpec& job, const Plan& plan);

/// A plan made elsewhere for workers 1, 2, ..., for these workers and this job.
/// InvalidArgument   as `check_plan`, or if there are too few workers.
absl::StatusOr<Plan> adopt_plan(const JobSpec& job, Plan plan, const std::vector<WorkerId>& workers,
                                uint64_t generation);

/// The plan with the n-th of `workers`, counted from 1, for its worker n; there must be so many.
Plan with_workers(Plan plan, const std::vector<WorkerId>& workers);

/// The way back: the plan with each worker's position in `workers`, counted from 1, for its number.
/// NotFound   names a worker that is not among them.
absl::StatusOr<Plan> with_positions(Plan plan, const std::vector<WorkerId>& workers);

/// "8 layers = embedding, 6 blocks, head": plans count layers, parallelism.layout counts blocks.
std::string layers_text(const ModelSpec& model);

/// "4x1 | 2x2": the layers and the replicas of each stage.
std::string stages_text(const Plan& plan);

/// The workers that hold replicas of the plan.
std::set<WorkerId> plan_workers(const Plan& plan);

/// Number of workers that hold replicas of the plan.
int64_t worker_count(const Plan& plan);

}  // namespace skein::plans
