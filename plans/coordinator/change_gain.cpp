#include "plans/coordinator/change_gain.hpp"

#include <optional>
#include <vector>

#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/pipelines_planner.hpp"
#include "plans/stragglers/speed_watch.hpp"
#include "plans/stragglers/stalls.hpp"

namespace skein::plans {
namespace {

/// Predictions err by a few per cent: a smaller gain is worth no change of plan.
constexpr double kGainMin = 0.05;

absl::StatusOr<double> predict_measured_progress(const ChangeQuestion& question, const Plan& plan) {
  SKEIN_ASSIGN_OR_RETURN(const Plan positioned, with_positions(plan, ids_of(question.measured)));
  const JobSpec& job = question.request.job;
  const PlanRequest asked = measured_request(job, question.measured);
  SKEIN_ASSIGN_OR_RETURN(
      const PipelinesProgress progress,
      predict_progress(
          job, positioned, asked,
          disturbed_clusters(asked.cluster, ids_of(question.measured), question.request.stalls),
          StepsOf::kStalls));
  return progress.per_second();
}

/// None: the plans cannot be compared so.
std::optional<bool> makes_more_progress(const ChangeQuestion& question, const Plan& candidate) {
  const auto now = predict_measured_progress(question, *question.request.current);
  const auto then = predict_measured_progress(question, candidate);
  if (!now.ok() || !then.ok()) return std::nullopt;
  return *then > (1 + kGainMin) * *now;
}

}  // namespace

bool is_worthwhile(const ChangeQuestion& question, const Plan& candidate) {
  const Plan& current = *question.request.current;
  const bool uses_more = worker_count(candidate) > worker_count(current);
  if (!question.is_planned) return uses_more;
  if (current.mode == kLocalMode && candidate.mode == kLocalMode) {
    return makes_more_progress(question, candidate).value_or(uses_more);
  }
  const auto now = predict_step_us(question.request.job, current, question.measured);
  const auto then = predict_step_us(question.request.job, candidate, question.measured);
  if (!now.ok() || !then.ok()) return uses_more;
  return *then < (1 - kGainMin) * *now;
}

}  // namespace skein::plans
