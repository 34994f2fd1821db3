#include "plans/coordinator/planner_questions.hpp"

#include <utility>

#include "plans/plan/layout_plan.hpp"
#include "plans/stragglers/speed_watch.hpp"

namespace skein::plans {
namespace {

/// Predictions err by a few per cent: a smaller gain is worth no change of plan.
constexpr double kGainMin = 0.05;

/// A plan that the planner chose must be predicted to be faster; a layout is better if it uses more
/// workers.
bool is_worthwhile(const ChangeQuestion& question, const Plan& candidate) {
  const Plan& current = *question.request.current;
  const bool uses_more = worker_count(candidate) > worker_count(current);
  if (!question.is_planned) return uses_more;
  const auto now = predict_step_us(question.request.job, current, question.measured);
  const auto then = predict_step_us(question.request.job, candidate, question.measured);
  if (!now.ok() || !then.ok()) return uses_more;
  return *then < (1 - kGainMin) * *now;
}

PlannerAnswer::What answer_any(const RoundQuestion& question) { return answer(question); }
PlannerAnswer::What answer_any(const ChangeQuestion& question) { return answer(question); }

PlannerAnswer::What answer_any(const MitigationQuestion& question) {
  return MitigationAnswer{choose_mitigation(question.job, question.current, question.measured,
                                            question.stragglers, question.steps_left,
                                            question.generation)};
}

PlannerAnswer::What answer_any(const PolicyQuestion& question) {
  return PolicyAnswer{choose_sync(question.profile, question.candidates, question.options)};
}

PlannerAnswer::What answer_any(const ExpectationQuestion& question) {
  return ExpectationAnswer{expected_busy_us(question.job, question.plan, question.measured)};
}

}  // namespace

RoundAnswer answer(const RoundQuestion& question) {
  RoundAnswer answer{question.make_plan(question.request)};
  if (!answer.chosen.ok() && question.with_leavers) {
    answer.chosen = question.make_plan(*question.with_leavers);
  }
  return answer;
}

ChangeAnswer answer(const ChangeQuestion& question) {
  ChangeAnswer answer{question.make_plan(question.request), false};
  if (answer.candidate.ok()) {
    answer.is_worthwhile = is_worthwhile(question, answer.candidate->plan);
  }
  return answer;
}

PlannerAnswer answer(const PlannerQuestion& question) {
  return {std::visit([](const auto& each) { return answer_any(each); }, question.what)};
}

}  // namespace skein::plans
