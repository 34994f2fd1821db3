#include "plans/coordinator/plan_review.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace skein::plans {
namespace {

/// Nobody can tell, of a step in which other jobs had the devices for more than this part, which
/// way to train would be faster: waits are known to within some of them only.
constexpr double kLentMax = 0.05;

/// The plan in force, to be measured before what may take its place.
PlannedPipeline ahead_of(const Plan& in_force, PlannedPipeline candidate) {
  PlannedPipeline first{in_force, 0, "the plan in force", {}};
  first.rivals = std::exchange(candidate.rivals, {});
  first.rivals.insert(first.rivals.begin(), std::move(candidate));
  return first;
}

RunEvent no_mitigation(const std::string& speeds, const std::string& why) {
  return {"straggler.no_mitigation", absl::StrCat(speeds, ": ", why), {}};
}

}  // namespace

PlanReview::PlanReview(const PlanCandidates& candidates, const std::optional<Plan>& last,
                       const ModeList& modes, PlanChange& change, PlannerRequests& requests)
    : candidates_(candidates),
      modes_(modes),
      change_(change),
      requests_(requests),
      mode_(first_mode(modes, candidates.job()).name),
      mode_choice_(candidates.job(), candidates.is_planned()),
      planned_mode_(candidates.job(), candidates.is_planned()),
      timings_(candidates.job(), candidates.is_planned()),
      trials_(candidates.job().tokens.trial_steps) {
  if (last && (mode_choice_.may_change() || planned_mode_.may_change())) mode_ = last->mode;
}

// The plan in force -------------------------------------------------------------------------------

CoordinatorDecisions PlanReview::begin_generation(bool was_urgent) {
  told_spare_.clear();
  speeds_reason_.clear();
  const Plan& plan = *change_.plan();
  mode_choice_.begin_generation(plan);
  std::set<WorkerId> members;
  for (const auto& [id, member] : candidates_.members().all()) members.insert(id);
  planned_mode_.forget_without(members);
  planned_mode_.begin_generation(plan);
  timings_.begin_generation(plan);
  trials_.begin_generation(plan, was_urgent);
  return timings_.follows_speeds() ? ask_expectation() : CoordinatorDecisions{};
}

TimingWatch::Observation PlanReview::on_commit(const Commit& commit) {
  if (commit.lent_share <= kLentMax) planned_mode_.on_commit(commit.steps_done, commit.step_us);
  // Until it is known what is expected now, what was told would be told, and applied, again.
  if (requests_.is_asked<ExpectationQuestion>()) return {};
  return timings_.on_commit(commit.steps_done, commit.timings);
}

CoordinatorDecisions PlanReview::look(const Commit& commit, const TimingWatch::Observation& seen,
                                      uint64_t now_us) {
  CoordinatorDecisions decisions;
  // By the layers' FLOPs the same would be expected, and the same told again and again.
  if (!seen.changes.empty() && candidates_.is_planned()) append(decisions, ask_expectation());
  if (!seen.due.empty() && commit.timings.step_reports.empty()) {
    // Replicas wait for nobody: none is to be relieved, but another plan may make more progress.
    plan_for_speeds(seen.due);
  } else if (!seen.due.empty()) {
    append(decisions, ask_mitigation(commit, seen.due, now_us));
  }
  if (commit.lent_share > kLentMax) return decisions;
  append(decisions, look_at_mode(commit, now_us));
  if (auto question = mode_choice_.on_commit(commit.timings, commit.step_us)) {
    append(decisions, requests_.ask({*std::move(question)}));
  }
  return decisions;
}

PlanReview::Advice PlanReview::try_another(const Commit& commit) {
  if (commit.lent_share > kLentMax) return {};
  PlanTrials::Outcome outcome = trials_.on_commit(commit.step_us);
  if (outcome.text.empty()) return {};
  std::string reason = outcome.next ? "another plan is tried" : "";
  if (outcome.next && outcome.is_end) reason = "the fastest plan that was tried";
  if (outcome.next) change_.propose(*std::move(outcome.next));
  return {{RunEvent{"plan.tried", outcome.text, {{"result", outcome.text}}}}, std::move(reason)};
}

/// What the plan in force expects of its workers. By the layers' FLOPs it is known at once; at
/// measured speeds it takes a simulation.
CoordinatorDecisions PlanReview::ask_expectation() {
  ExpectationQuestion question{job(), *change_.plan(),
                               candidates_.measurements().of(change_.workers())};
  if (!question.measured.empty()) return requests_.ask({std::move(question)});
  timings_.expect({expected_busy_us(question.job, question.plan, {})});
  return {};
}

PlanReview::Advice PlanReview::take(const PlannerAnswer& answer, uint64_t steps_done,
                                    bool is_held) {
  if (const auto* change = std::get_if<ChangeAnswer>(&answer.what))
    return take(*change, steps_done);
  if (const auto* mitigation = std::get_if<MitigationAnswer>(&answer.what)) {
    return take(*mitigation, steps_done);
  }
  if (is_held) return {};
  if (const auto* policy = std::get_if<PolicyAnswer>(&answer.what)) return take(*policy);
  if (const auto* mode = std::get_if<ModeAnswer>(&answer.what)) return take(*mode);
  return {};
}

// Speeds ------------------------------------------------------------------------------------------

/// Another plan is wanted, as these take longer or shorter than the one in force says.
void PlanReview::plan_for_speeds(const std::vector<SpeedChange>& due) {
  std::map<WorkerId, SpeedChange> newest;
  for (const SpeedChange& change : due) {
    if (is_member(change.worker)) newest[change.worker] = change;
  }
  if (newest.empty()) return;
  speeds_reason_ = absl::StrJoin(newest, ", ", [](std::string* out, const auto& change) {
    absl::StrAppendFormat(out, "w%d takes %.3g times as long as planned", change.first.value,
                          change.second.slowdown);
  });
}

std::optional<std::vector<WorkerId>> PlanReview::workers_to_keep(uint64_t now_us) const {
  std::vector<WorkerId> workers = change_.workers();
  const std::vector<WorkerId> able = candidates_.able(now_us, Leavers::kWithout);
  if (!std::includes(able.begin(), able.end(), workers.begin(), workers.end())) return std::nullopt;
  std::copy_if(able.begin(), able.end(), std::back_inserter(workers),
               [this](WorkerId worker) { return !change_.hosts(worker); });
  workers = candidates_.first_allowed(std::move(workers));
  std::sort(workers.begin(), workers.end());
  return workers;
}

CoordinatorDecisions PlanReview::ask_mitigation(const Commit& commit,
                                                const std::vector<SpeedChange>& due,
                                                uint64_t now_us) {
  const auto workers = workers_to_keep(now_us);
  if (!workers) return {};
  MitigationQuestion question;
  question.job = job();
  question.current = *change_.plan();
  question.measured = candidates_.measurements().of(*workers);
  for (const SpeedChange& change : due) {
    if (change.slowdown > 1 && is_member(change.worker)) {
      question.stragglers.push_back(change.worker);
    }
  }
  const auto total = static_cast<uint64_t>(job().training.steps);
  question.steps_left = total - std::min(total, commit.steps_done);
  question.generation = commit.generation + 1;
  return requests_.ask({std::move(question)});
}

PlanReview::Advice PlanReview::take(const MitigationAnswer& answer, uint64_t steps_done) {
  const absl::StatusOr<Mitigation>& mitigation = answer.mitigation;
  if (!mitigation.ok()) {
    return {{RunEvent{"straggler.no_mitigation", std::string(mitigation.status().message()), {}}},
            ""};
  }
  CoordinatorDecisions decisions = {
      RunEvent{"straggler.mitigation",
               absl::StrCat(to_text(mitigation->kind), ": ", mitigation->reason),
               {{"kind", to_text(mitigation->kind)}, {"gain", absl::StrCat(mitigation->gain)}}}};
  if (mitigation->kind == Mitigation::Kind::kNone) return {std::move(decisions), ""};
  timings_.on_mitigation(steps_done);
  PlannedPipeline next{mitigation->plan, mitigation->predicted_step_us, mitigation->reason};
  next.plan.mode = change_.plan()->mode;
  change_.propose(std::move(next));
  return {std::move(decisions), mitigation->reason};
}

// Members -----------------------------------------------------------------------------------------

bool PlanReview::must_change() const {
  const auto& members = candidates_.members().all();
  return std::any_of(members.begin(), members.end(), [this](const auto& each) {
    return each.second.leaves && change_.hosts(each.first);
  });
}

PlanReview::Advice PlanReview::seek_better(const WorkerPairs& apart, uint64_t generation,
                                           uint64_t steps_done, uint64_t now_us) {
  // Who is left out as it cannot reach others stays out as long as that is believed.
  std::vector<WorkerId> workers = candidates_.able(now_us, Leavers::kWithout);
  std::erase_if(workers, [&](WorkerId worker) {
    return !change_.hosts(worker) &&
           std::any_of(apart.begin(), apart.end(), [&](const WorkerPair& pair) {
             return pair.first == worker || pair.second == worker;
           });
  });
  ChangeQuestion question;
  question.make_plan = mode().make_plan;
  question.request = candidates_.request(candidates_.first_allowed(std::move(workers)), generation,
                                         /*is_urgent=*/false);
  question.request.stalls = stalls();
  considered_ = {question.request.workers, std::exchange(speeds_reason_, "")};
  const auto fewest = static_cast<size_t>(job().elastic.min_workers);
  const size_t count = question.request.workers.size();
  if (count < std::max<size_t>(1, fewest)) {
    return take(
        ChangeAnswer{absl::UnavailableError(absl::StrCat(
            "waiting for workers: ", count, " can take part, elastic.min_workers is ", fewest))},
        steps_done);
  }
  if (!candidates_.is_planned()) return take(answer(question), steps_done);
  question.is_planned = true;
  question.measured = candidates_.measurements().all();
  return {requests_.ask({std::move(question)}), ""};
}

PlanReview::Advice PlanReview::take(const ChangeAnswer& answer, uint64_t steps_done) {
  const bool must = must_change();
  const std::string speeds = std::exchange(considered_.speeds_reason, "");
  const bool tries = answer.candidate.ok() && trials_.take_due(*answer.candidate);
  if (!must && tries && !answer.is_worthwhile) return try_from_here(*answer.candidate, speeds);
  if (!must && !(answer.candidate.ok() && answer.is_worthwhile)) {
    const std::string why =
        !answer.candidate.ok()     ? std::string(answer.candidate.status().message())
        : candidates_.is_planned() ? "no plan promises 5 % more than the one in force"
                                   : "the job's layout has no place for more";
    CoordinatorDecisions decisions = tell_spare(why);
    if (!speeds.empty()) decisions.push_back(no_mitigation(speeds, why));
    return {std::move(decisions), ""};
  }
  if (!answer.candidate.ok()) {
    return {{RunEvent{"worker.cannot_leave",
                      absl::StrCat("a worker that is to leave stays for now: ",
                                   std::string(answer.candidate.status().message())),
                      {}}},
            ""};
  }
  // A layout is made anew, in no time, for those who are here then.
  if (candidates_.is_planned()) change_.propose(*answer.candidate);
  if (must) return {{}, "a worker leaves"};
  if (speeds.empty()) return {{}, "there are workers that could help"};
  timings_.on_mitigation(steps_done);
  return {{RunEvent{"straggler.mitigation",
                    absl::StrCat("another plan: ", speeds, "; ", answer.candidate->reason),
                    {{"kind", "another plan"}}}},
          speeds};
}

/// Predictions err: what promises no more than the plan in force is measured beside it, and that
/// one stays if it is the fastest.
PlanReview::Advice PlanReview::try_from_here(const PlannedPipeline& candidate,
                                             const std::string& speeds) {
  const bool is_same = is_same_but_for_generation(candidate.plan, *change_.plan());
  trials_.on_chosen(is_same ? candidate : ahead_of(*change_.plan(), candidate));
  const std::string why = is_same ? "the plan in force is the one that promises most"
                                  : "plans for those who are left are tried";
  CoordinatorDecisions decisions = tell_spare(why);
  if (!speeds.empty()) decisions.push_back(no_mitigation(speeds, why));
  return {std::move(decisions), ""};
}

/// Nobody is idle without a reason that people are told.
CoordinatorDecisions PlanReview::tell_spare(const std::string& why) {
  std::vector<std::string> names;
  for (WorkerId id : considered_.workers) {
    if (!change_.hosts(id)) names.push_back(absl::StrCat("w", id.value));
  }
  if (names == std::exchange(told_spare_, names) || names.empty()) return {};
  const std::string who = absl::StrJoin(names, ", ");
  return {RunEvent{
      "worker.spare",
      absl::StrCat(who, names.size() == 1 ? " is" : " are", " spare, for the next loss: ", why),
      {{"workers", who}, {"reason", why}}}};
}

// The mode ----------------------------------------------------------------------------------------

PlanMaker PlanReview::make_otherwise() const {
  if (!planned_mode_.may_change()) return nullptr;
  return planner_of(mode_ == kLocalMode ? kSynchronousMode : kLocalMode);
}

RunEvent PlanReview::change_mode(const std::string& mode, const std::string& why) {
  mode_ = mode;
  return {"sync.changed", why, {{"why", why}}};
}

CoordinatorDecisions PlanReview::look_at_mode(const Commit& commit, uint64_t now_us) {
  // A speed that has changed would count twice until what is expected now is known.
  const bool may_look =
      !requests_.is_asked<ModeQuestion>() && !requests_.is_asked<ExpectationQuestion>();
  if (!may_look || !planned_mode_.is_due(timings_.recent())) return {};
  ModeQuestion question;
  question.make_together = planner_of(kSynchronousMode);
  question.make_apart = planner_of(kLocalMode);
  question.request = candidates_.request(candidates_.eligible(now_us, Leavers::kWithout),
                                         commit.generation, /*is_urgent=*/false);
  if (question.request.workers.empty()) return {};  // All are to leave.
  question.request.stalls = stalls();
  question.measured = candidates_.measurements().all();
  question.steps = {timings_.recent().last.begin(), timings_.recent().last.end()};
  return requests_.ask({std::move(question)});
}

PlanReview::Advice PlanReview::take(const PolicyAnswer& answer) {
  const auto change = mode_choice_.on_answer(answer);
  return change ? change_to(*change) : Advice{};
}

PlanReview::Advice PlanReview::take(const ModeAnswer& answer) {
  if (const auto change = planned_mode_.on_answer(answer)) return change_to(*change);
  return {{RunEvent{"sync.looked", planned_mode_.last_look(), {{"mode", mode_}}}}, ""};
}

PlanReview::Advice PlanReview::change_to(const ModeChoice::Change& change) {
  // What the planner says or has said of the mode before is not wanted any more.
  requests_.forget_all();
  change_.drop_proposal();
  return {{change_mode(change.mode, change.event)}, change.reason};
}

}  // namespace skein::plans
