#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plans/elastic/replan.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/tokens/token_order.hpp"
#include "plans/tokens/token_pool.hpp"

namespace skein::plans {

/// A sub-model of a plan by tokens: what it is, and who may train it, in tokens of so many samples.
struct TokenStage {
  LayerRange layers;
  int64_t samples = 0;
  std::vector<WorkerId> workers;
};
/// The plan of these sub-models, at least one, and of steps of so many samples, whole tokens of the
/// last one. Its generation is 0, and it is not validated.
Plan assemble_token_plan(const JobSpec& job, const std::vector<TokenStage>& stages,
                         int64_t step_samples);

/// The plan of a job that is trained by tokens: its sub-models are the stages of
/// `parallelism.layout`, or `pipeline_parallel_degree` stages that are even by cost, and each has a
/// replica on every worker, or on as many as `tokens.workers` says. Those who hold a stage in
/// `current` keep it; else those with the smallest numbers have it.
/// InvalidArgument   if the layout does not fit the model.
absl::StatusOr<Plan> make_token_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                                     uint64_t generation, const std::optional<Plan>& current);

/// The same, whenever members have changed; or what `plan_tokens` chooses, if the planner is to.
absl::StatusOr<PlannedPipeline> replan_tokens(const ReplanRequest& request);

/// Sub-models and tokens of the current plan, by the workers that are here: all of them where all
/// could train a sub-model, else those who could.
/// NotFound          if the current plan is none of tokens, or all who could train one of its
///                   sub-models are lost.
/// InvalidArgument   if the job, resumed with other keys, has no place for its tokens.
absl::StatusOr<PlannedPipeline> quick_replan_tokens(const ReplanRequest& request);

// What a plan of that mode says of its tokens.

TokenShape token_shape(const Plan& plan);
LevelWorkers level_workers(const Plan& plan);

}  // namespace skein::plans
