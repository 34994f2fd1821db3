// Changes of plan: everybody halts, a plan is chosen for who is there, state moves, training goes
// on.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/coordinator/coordination.hpp"
#include "plans/elastic/snapshot_keepers.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::plans {
namespace {

/// Predictions err by a few per cent: a smaller gain is worth no change of plan.
constexpr double kGainMin = 0.05;
/// The workers that hold replicas, ascending.
std::vector<WorkerId> members_of(const Plan& plan) {
  std::set<WorkerId> workers;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) workers.insert(replica.worker);
  }
  return {workers.begin(), workers.end()};
}

}  // namespace

HaltWorker Coordination::halt(WorkerId worker) const {
  const uint64_t steps = commits_.steps_done();
  return {worker, generation_, steps, commits_.last_norm(), commits_.generation_of(steps)};
}

CoordinatorDecisions Coordination::begin_halt(const std::string& reason, uint64_t now_us) {
  if (commits_.is_journaling()) {  // The commit goes out first: who halts has applied it then.
    halt_after_journal_ = reason;
    return {};
  }
  if (phase_ == Phase::kTraining && !commits_.is_held()) goodput_.on_abandoned(now_us);
  goodput_.enter(GoodputLedger::Activity::kMoving, now_us);
  phase_ = Phase::kHalting;
  generation_ = std::max(generation_, seen_generation_) + 1;
  last_progress_us_ = now_us;
  troubles_.clear();
  CoordinatorDecisions decisions = commits_.end_generation();
  columns_.reset();
  if (!reason.empty()) {
    decisions.push_back(RunEvent{"plan.halted",
                                 absl::StrCat("changing the plan: ", reason),
                                 {{"generation", absl::StrCat(generation_)}, {"reason", reason}}});
  }
  for (auto& [id, member] : members_) {
    member.halted = member.prepared = false;
    member.holdings.clear();
    decisions.push_back(halt(id));
  }
  append(decisions, try_assign(now_us));  // There may be nobody left.
  return decisions;
}

CoordinatorDecisions Coordination::on_halted(WorkerId worker, uint64_t generation,
                                             std::vector<Holding> holdings, uint64_t now_us) {
  auto member = members_.find(worker);
  if (phase_ != Phase::kHalting || generation != generation_ || member == members_.end() ||
      member->second.halted) {
    return drop();
  }
  // Who was away during a rollback may bring state of the steps that were taken back.
  std::erase_if(holdings, [this](const Holding& each) {
    return each.generation != commits_.generation_of(each.step);
  });
  member->second.halted = true;
  member->second.holdings = std::move(holdings);
  last_progress_us_ = now_us;
  return try_assign(now_us);
}

absl::StatusOr<PlannedPipeline> Coordination::choose_plan(uint64_t now_us, Leavers leavers,
                                                          bool is_urgent) const {
  ReplanRequest request;
  request.workers = eligible_workers(now_us, leavers);
  if (static_cast<int64_t>(request.workers.size()) < options_.job.elastic.min_workers) {
    return absl::UnavailableError(absl::StrCat("waiting for workers: ", request.workers.size(),
                                               " can take part, elastic.min_workers is ",
                                               options_.job.elastic.min_workers));
  }
  request.job = options_.job;
  request.given = options_.plan;
  request.measured = measured_workers(request.workers);
  request.current = plan_;
  request.is_urgent = is_urgent;
  request.in_columns = in_columns_;
  request.generation = generation_;
  return replan(request);
}

/// Once everybody has halted: a plan for those who may take part, if need be with those who would
/// rather leave, or a pause.
CoordinatorDecisions Coordination::try_assign(uint64_t now_us) {
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [](const auto& each) { return each.second.halted; });
  if (phase_ != Phase::kHalting || !all) return {};
  if (std::optional<PlannedPipeline> remedy = take_remedy(now_us)) {
    return assign(*std::move(remedy), now_us);
  }
  absl::StatusOr<PlannedPipeline> chosen = choose_plan(now_us, Leavers::kWithout, is_urgent_);
  const bool some_leave = std::any_of(members_.begin(), members_.end(),
                                      [](const auto& each) { return each.second.leaves; });
  if (!chosen.ok() && some_leave) chosen = choose_plan(now_us, Leavers::kWith, is_urgent_);
  if (chosen.ok()) return assign(*std::move(chosen), now_us);
  const bool lacks_workers = absl::IsUnavailable(chosen.status());
  if (!has_trained_ && !lacks_workers) return end(chosen.status(), false);
  return pause(std::string(chosen.status().message()), now_us);
}

CoordinatorDecisions Coordination::pause(const std::string& why, uint64_t now_us) {
  phase_ = Phase::kGathering;
  goodput_.enter(GoodputLedger::Activity::kWaiting, now_us);
  has_trained_ =
      true;  // Whoever comes is welcome now: not all of the first workers are waited for.
  last_progress_us_ = now_us;
  hosted_.clear();
  change_at_us_.reset();
  for (const auto& [id, member] : members_) {
    if (member.eligible_us > now_us) consider_change(member.eligible_us);
  }
  return {RunEvent{"run.paused", why, {{"reason", why}}}};
}

CoordinatorDecisions Coordination::assign(PlannedPipeline chosen, uint64_t now_us) {
  plan_ = std::move(chosen.plan);
  hosted_.clear();
  std::map<WorkerId, std::string> hosts;
  for (const StagePlan& stage : plan_->stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      hosted_[replica.worker].insert(replica.id);
      hosts[replica.worker] = members_.at(replica.worker).request.host_name;
    }
  }
  StateSources sources;
  for (const auto& [id, member] : members_) sources.holdings[id] = member.holdings;
  sources.committed = commits_.steps_done();
  sources.durable_step = commits_.durable_step();
  restore_ = decide_restore(*plan_, layer_count(options_.job.model), sources);
  keepers_ = snapshot_keepers(*plan_, options_.job.model, hosts);
  phase_ = Phase::kPreparing;
  last_progress_us_ = now_us;
  CoordinatorDecisions decisions = {describe_plan(chosen)};
  if (restore_.first_step < commits_.steps_done()) {
    decisions.push_back(RunEvent{
        "run.rolled_back",
        absl::StrCat("nobody holds all state of step ", commits_.steps_done(),
                     ": going back to step ", restore_.first_step,
                     restore_.from_checkpoint ? " of the checkpoint" : " of the snapshots"),
        {{"from", absl::StrCat(commits_.steps_done())},
         {"to", absl::StrCat(restore_.first_step)}}});
  }
  decisions.push_back(AssignPlan{*plan_, chosen.objective_us, restore_, keepers_,
                                 commits_.generation_of(restore_.first_step)});
  return decisions;
}

RunEvent Coordination::describe_plan(const PlannedPipeline& chosen) const {
  std::string text =
      absl::StrCat("plan ", plan_->generation, ": ", plan_->stages.size(),
                   " stages (layers x replicas ", stages_text(*plan_), "; ",
                   layers_text(options_.job.model), "), ", std::string(to_text(plan_->schedule)),
                   ", ", plan_->microbatch_count, " micro-batches of ", plan_->microbatch_rows);
  if (has_trained_) absl::StrAppend(&text, ", ", restore_.moves.size(), " layers move");
  return {"plan.made",
          std::move(text),
          {{"generation", absl::StrCat(plan_->generation)},
           {"stages", absl::StrCat(plan_->stages.size())},
           {"moves", absl::StrCat(restore_.moves.size())},
           {"predicted_step_us", absl::StrCat(chosen.objective_us)},
           {"reason", chosen.reason}}};
}

CoordinatorDecisions Coordination::on_prepared(WorkerId worker, uint64_t generation,
                                               uint64_t now_us) {
  auto member = members_.find(worker);
  if (phase_ != Phase::kPreparing || generation != generation_ || member == members_.end() ||
      member->second.prepared) {
    return drop();
  }
  member->second.prepared = true;
  last_progress_us_ = now_us;
  return try_start(now_us);
}

CoordinatorDecisions Coordination::try_start(uint64_t now_us) {
  for (const auto& [id, replicas] : hosted_) {
    if (!members_.at(id).prepared) return {};
  }
  CoordinatorDecisions decisions;
  if (restore_.first_step < commits_.steps_done()) {
    // Only now: if the plan had not come about, who has the newer state might have come back.
    goodput_.on_rollback(restore_.first_step, now_us);
    decisions.push_back(RewindJournal{restore_.first_step});
  }
  const CommitOrder order =
      commits_.begin_generation(*plan_, keepers_, restore_.first_step, now_us);
  phase_ = order.last ? Phase::kFinishing : Phase::kTraining;
  goodput_.enter(GoodputLedger::Activity::kTraining, now_us);
  speeds_.begin_generation(options_.job, *plan_, measured_workers(members_of(*plan_)));
  troubles_.clear();
  const bool was_urgent = std::exchange(is_urgent_, false);
  const uint64_t next = steps_done() + 1;
  decisions.push_back(StartRun{order});
  columns_.reset();
  if (plan_->in_columns) columns_.emplace(options_.job, *plan_);
  begin_sync_watch();
  decisions.push_back(
      RunEvent{has_trained_ ? "run.continued" : "run.started",
               absl::StrCat("training ", has_trained_ ? "goes on" : "starts", " at step ", next,
                            " of ", options_.job.training.steps),
               {{"step", absl::StrCat(next)}, {"generation", absl::StrCat(generation_)}}});
  has_trained_ = true;
  if (columns_ && phase_ == Phase::kTraining) append(decisions, begin_segment());
  append(decisions, dismiss_leavers());
  // Whoever came or asked to leave meanwhile; and a plan that was made in a hurry may have a
  // better.
  const bool has_other_members =
      std::any_of(members_.begin(), members_.end(),
                  [this](const auto& each) { return hosts(each.first) == each.second.leaves; });
  if (was_urgent || has_other_members) consider_change(now_us);
  append(decisions, try_finish());
  return decisions;
}

/// Lets go those who asked to leave and hold nothing any more.
CoordinatorDecisions Coordination::dismiss_leavers() {
  std::vector<WorkerId> gone;
  for (const auto& [id, member] : members_) {
    if (member.leaves && !hosts(id)) gone.push_back(id);
  }
  CoordinatorDecisions decisions;
  for (WorkerId id : gone) {
    decisions.push_back(RunEvent{"worker.left",
                                 absl::StrCat(describe(id), " has left; its state has moved"),
                                 {{"worker", absl::StrCat(id.value)}}});
    decisions.push_back(StopWorker{id, "drained"});
    members_.erase(id);
  }
  return decisions;
}

void Coordination::consider_change(uint64_t at_us) {
  change_at_us_ = change_at_us_ ? std::min(*change_at_us_, at_us) : at_us;
}

/// If the members of the run have changed, another plan may be better: it comes after the step in
/// progress.
CoordinatorDecisions Coordination::check_change(uint64_t now_us) {
  if (phase_ != Phase::kTraining || !change_at_us_ || now_us < *change_at_us_ ||
      halt_after_journal_ || stop_requested_) {
    return {};
  }
  change_at_us_.reset();
  const bool must = std::any_of(members_.begin(), members_.end(), [this](const auto& each) {
    return each.second.leaves && hosts(each.first);
  });
  for (const auto& [id, member] : members_) {
    if (member.eligible_us > now_us) consider_change(member.eligible_us);
  }
  const auto candidate = choose_plan(now_us, Leavers::kWithout, false);
  if (!candidate.ok()) {
    if (!must) return {};
    return {RunEvent{"worker.cannot_leave",
                     absl::StrCat("a worker that is to leave stays for now: ",
                                  std::string(candidate.status().message())),
                     {}}};
  }
  if (!must && !is_worthwhile(candidate->plan)) return {};
  hold_for_change(must ? "a worker leaves" : "there are workers that could help");
  return {};
}

/// A plan that the planner chose must be predicted to be faster; a layout is better if it uses more
/// workers.
bool Coordination::is_worthwhile(const Plan& candidate) const {
  if (!chooses_plan()) return worker_count(candidate) > worker_count(*plan_);
  const std::vector<MeasuredWorker> measured = measured_workers();
  const auto now = predict_step_us(options_.job, *plan_, measured);
  const auto then = predict_step_us(options_.job, candidate, measured);
  if (!now.ok() || !then.ok()) return worker_count(candidate) > worker_count(*plan_);
  return *then < (1 - kGainMin) * *now;
}

/// Who has become slower or faster is known by that from now on; if the planner chooses the plan,
/// something is done about it.
CoordinatorDecisions Coordination::watch_speeds() {
  // Columns of their own pace wait for nobody.
  if (!options_.job.elastic.watch_speeds || columns_ || commits_.is_held() || halt_after_journal_)
    return {};
  const std::vector<SpeedChange> changes =
      speeds_.on_step(commits_.steps_done(), commits_.last_reports());
  CoordinatorDecisions decisions;
  for (const SpeedChange& change : changes) {
    decisions.push_back(RunEvent{"worker.speed_changed",
                                 absl::StrCat(describe(change.worker), ": ", change.reason),
                                 {{"worker", absl::StrCat(change.worker.value)},
                                  {"slowdown", absl::StrCat(change.slowdown)}}});
    std::optional<MeasuredWorker>& measured = members_.at(change.worker).measured;
    if (measured) slow_down(*measured, change.slowdown);
  }
  if (!changes.empty()) speeds_.reset(measured_workers(members_of(*plan_)));
  if (!chooses_plan() || stop_requested_) return decisions;
  remedy_pace_.on_changes(changes);
  const std::vector<SpeedChange> due = remedy_pace_.take(commits_.steps_done());
  if (!due.empty()) append(decisions, remedy_slowness(due));
  return decisions;
}

CoordinatorDecisions Coordination::remedy_slowness(const std::vector<SpeedChange>& changes) {
  std::vector<WorkerId> stragglers;
  for (const SpeedChange& change : changes) {
    if (change.slowdown > 1 && members_.contains(change.worker)) {
      stragglers.push_back(change.worker);
    }
  }
  const auto total = static_cast<uint64_t>(options_.job.training.steps);
  const auto remedy =
      choose_remedy(options_.job, *plan_, measured_workers(), stragglers,
                    total - std::min(total, commits_.steps_done()), generation_ + 1);
  if (!remedy.ok()) {
    return {RunEvent{"straggler.no_remedy", std::string(remedy.status().message()), {}}};
  }
  CoordinatorDecisions decisions = {
      RunEvent{"straggler.remedy",
               absl::StrCat(to_text(remedy->kind), ": ", remedy->reason),
               {{"kind", to_text(remedy->kind)}, {"gain", absl::StrCat(remedy->gain)}}}};
  if (remedy->kind == Remedy::Kind::kNone) return decisions;
  remedy_pace_.on_remedy(commits_.steps_done());
  remedy_ = PlannedPipeline{remedy->plan, remedy->predicted_step_us, remedy->reason};
  hold_for_change(remedy->reason);
  return decisions;
}

/// The remedy, if all its workers are still there.
std::optional<PlannedPipeline> Coordination::take_remedy(uint64_t now_us) {
  std::optional<PlannedPipeline> remedy = std::exchange(remedy_, std::nullopt);
  if (!remedy || is_urgent_) return std::nullopt;
  const std::vector<WorkerId> workers = eligible_workers(now_us, Leavers::kWithout);
  for (WorkerId worker : members_of(remedy->plan)) {
    if (std::find(workers.begin(), workers.end(), worker) == workers.end()) return std::nullopt;
  }
  remedy->plan.generation = generation_;
  return remedy;
}

}  // namespace skein::plans
