#include "plans/coordinator/planner_questions.hpp"

#include <utility>

#include "plans/coordinator/change_gain.hpp"
#include "plans/coordinator/mode_gain.hpp"
#include "plans/stragglers/speed_watch.hpp"

namespace skein::plans {
namespace {

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

PlannerAnswer::What answer_any(const ModeQuestion& question) { return answer(question); }

PlannerAnswer::What answer_any(const ExpectationQuestion& question) {
  return ExpectationAnswer{expected_busy_us(question.job, question.plan, question.measured)};
}

}  // namespace

RoundAnswer answer(const RoundQuestion& question) {
  absl::Status refused;
  for (const std::optional<ReplanRequest>& request :
       {question.without_unreached, std::optional(question.request), question.with_leavers}) {
    if (!request) continue;
    absl::StatusOr<PlannedPipeline> chosen = question.make_plan(*request);
    if (chosen.ok()) return {std::move(chosen), absl::OkStatus()};
    if (refused.ok()) refused = chosen.status();
    if (!question.make_otherwise) continue;
    absl::StatusOr<PlannedPipeline> other = question.make_otherwise(*request);
    if (other.ok()) return {std::move(other), chosen.status()};
  }
  return {refused, absl::OkStatus()};
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
