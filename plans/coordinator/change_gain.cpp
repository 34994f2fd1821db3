#include "plans/coordinator/change_gain.hpp"

#include "plans/plan/layout_plan.hpp"
#include "plans/stragglers/speed_watch.hpp"

namespace skein::plans {
namespace {

/// Predictions err by a few per cent: a smaller gain is worth no change of plan.
constexpr double kGainMin = 0.05;

}  // namespace

bool is_worthwhile(const ChangeQuestion& question, const Plan& candidate) {
  const Plan& current = *question.request.current;
  const bool uses_more = worker_count(candidate) > worker_count(current);
  if (!question.is_planned) return uses_more;
  const auto now = predict_step_us(question.request.job, current, question.measured);
  const auto then = predict_step_us(question.request.job, candidate, question.measured);
  if (!now.ok() || !then.ok()) return uses_more;
  return *then < (1 - kGainMin) * *now;
}

}  // namespace skein::plans
