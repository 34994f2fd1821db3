#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// Plans steps by tokens by what was measured: the sub-models (by thresholds, one to four of
/// them), how many samples a token of each has, and who may train it.
/// Choices are simulated (`tune_tokens`: with many workers not all of them, which the reason says),
/// and the fastest that fits the memory is taken.
///
/// `request`  As for other planners; its rows of a micro-batch, its schedules and `may_recompute`
///            are not used: layers are computed again if the job says so.
/// Returns    A plan in the mode of tokens. The objective is the simulated time of a step. With
///            `tokens.trial_steps` also the next two, if they are within 4 % of it.
/// ResourceExhausted   if no choice fits the memory; says what the fastest one lacks.
/// Cost                that of `tune_tokens` for each number of sub-models.
absl::StatusOr<PlannedPipeline> plan_tokens(const JobSpec& job, const PlanRequest& request);

struct TokenPrediction {
  double step_us = 0;
  std::map<WorkerId, double> busy_us;  // What each worker computes in a step.
};
/// What is simulated of steps by such a plan.
/// NotFound   if one of its workers has not measured.
absl::StatusOr<TokenPrediction> predict_tokens(const JobSpec& job, const Plan& plan,
                                               const std::vector<MeasuredWorker>& measured);

}  // namespace skein::plans
