#include "plans/coordinator/coordination.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/bad_input.hpp"
#include "plans/base/check.hpp"
#include "plans/base/units.hpp"
#include "plans/coordinator/run_events.hpp"
#include "plans/elastic/route_around.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/action_times.hpp"

namespace skein::plans {
namespace {

/// Workers that come or go together are handled together.
constexpr uint64_t kSettleUs = 300'000;
/// A long pause of our own, which people may want to know of.
constexpr uint64_t kTellPauseUs = kSecondUs;
/// How often people are told that the journal cannot be written.
constexpr uint64_t kTellJournalUs = 30'000'000;
/// Changes of plan that workers may have seen and the journal has not: one that was broken off is
/// not written down. Whoever has seen more is of another run.
constexpr uint64_t kUnknownChangesMax = uint64_t{1} << 20;
/// A worker of another run asks again and again; so many runs are told of, each once.
constexpr size_t kRefusedRunsMax = 64;

/// A worker that lives and hears nothing on its link is back on another one within this time.
double return_seconds(const JobSpec& job) {
  return job.elastic.heartbeat_timeout_seconds + kRejoinUs * kSecondsPerMicrosecond;
}

uint64_t return_us(const JobSpec& job) {
  return static_cast<uint64_t>(return_seconds(job) / kSecondsPerMicrosecond);
}

/// Who comes and goes without a step in between is not waited for again and again.
AbsentHolders::Patience patience_of(const JobSpec& job, double wait_s) {
  const double more_s = job.comm.init_timeout_seconds / 2;
  return {static_cast<uint64_t>(wait_s / kSecondsPerMicrosecond),
          static_cast<uint64_t>(more_s / kSecondsPerMicrosecond)};
}

bool is_left_to_planner(const Coordination::Options& options) {
  return !options.plan && options.job.parallelism.pipeline_parallel_degree == kAutoDegree;
}

/// For how long other jobs had the device of the worker that waited longest in the step. What a
/// worker has waited stands with the stages that it has.
uint64_t other_jobs_us(const BroadcastCommit& commit, const Plan& plan) {
  std::map<WorkerId, double> waited_s;
  double longest_s = 0;
  for (size_t s = 0; s < commit.stage_device_wait_seconds.size(); ++s) {
    for (const ReplicaPlan& replica : plan.stages[s].replicas) {
      double& own_s = waited_s[replica.worker];
      own_s += commit.stage_device_wait_seconds[s];
      longest_s = std::max(longest_s, own_s);
    }
  }
  return static_cast<uint64_t>(longest_s * kMicrosecondsPerSecond);
}

/// What has happened to a worker.
struct Mishap {
  std::string who;
  uint64_t step = 0;
  absl::Status blame;  // Why the run ends, if it is for that.
};

Mishap mishap_of(std::string who, uint64_t steps_done, const absl::Status& why) {
  const uint64_t step = steps_done + 1;
  std::string text = absl::StrCat(who, " failed at step ", step, ": ", why.message());
  return {std::move(who), step, absl::Status(why.code(), text)};
}

/// What those are told who see a plan begin behind the last step.
std::string all_done(const JobSpec& job, const CommitOrder& order) {
  std::vector<std::string> left;
  if (order.validate) left.push_back("validation");
  if (order.checkpoint) left.push_back("the last checkpoint");
  return absl::StrCat("all ", job.training.steps, " steps are done",
                      left.empty() ? "" : "; what is left: ", absl::StrJoin(left, ", "));
}

}  // namespace

Coordination::Coordination(Options options, uint64_t now_us)
    : options_(std::move(options)),
      generation_(options_.generation),
      members_(options_.job.elastic.heartbeat_timeout_seconds, options_.last_plan),
      measurements_(options_.job),
      change_(options_.job, options_.last_plan),
      candidates_(options_.job, options_.plan, is_left_to_planner(options_), members_,
                  measurements_, change_),
      review_(candidates_, options_.last_plan, modes_or_own(options_.modes), change_, requests_),
      log_(options_.job, options_.term,
           {options_.committed_steps, options_.committed_norm, options_.committed_loss,
            options_.durable_step, options_.generations}),
      shards_(options_.job.comm.train_timeout_seconds),
      reads_(!options_.is_verified),
      progress_(options_.job, now_us) {
  goodput_.begin(now_us);
  if (!options_.last_plan) return;
  if (options_.awaits_last_workers) {
    const double wait_s =
        std::min(return_seconds(options_.job), options_.job.comm.init_timeout_seconds);
    std::set<WorkerId> workers = plan_workers(*options_.last_plan);
    for (const auto& [worker, generation] : options_.earlier_workers) workers.insert(worker);
    for (const WorkerId worker : workers) {
      absent_.await(worker, "it was part of a plan before the coordinator's restart",
                    patience_of(options_.job, wait_s), "", now_us);
    }
  }
  // A layout that follows the number of workers does not say how many there were.
  options_.worker_count = std::max(options_.worker_count, worker_count(*options_.last_plan));
}

// Steps -------------------------------------------------------------------------------------------

CoordinatorOutcome Coordination::on_ready(WorkerId sender, const ReadyReport& report,
                                          uint64_t now_us) {
  if (phase_ != Phase::kTraining) return Dropped{DropReason::kUnexpected};
  return advance(mode_->on_ready(sender, report, now_us), now_us);
}

CoordinatorOutcome Coordination::on_early_signal(WorkerId sender, ReplicaId replica, uint64_t step,
                                                 uint64_t now_us) {
  if (phase_ != Phase::kTraining) return Dropped{DropReason::kUnexpected};
  return advance(mode_->on_early_signal(sender, replica, step, now_us), now_us);
}

CoordinatorOutcome Coordination::on_token(WorkerId sender, ReplicaId replica, uint64_t step,
                                          int32_t token, TokenEvent event, uint64_t now_us) {
  if (phase_ != Phase::kTraining) return Dropped{DropReason::kUnexpected};
  return advance(mode_->on_token(sender, replica, step, token, event, now_us), now_us);
}

CoordinatorOutcome Coordination::on_reduced(WorkerId sender, ReplicaId replica, uint64_t step,
                                            double norm_squared, uint64_t now_us) {
  if (phase_ != Phase::kTraining) return Dropped{DropReason::kUnexpected};
  return advance(mode_->on_reduced(sender, replica, step, norm_squared, now_us), now_us);
}

CoordinatorOutcome Coordination::on_averaged(WorkerId sender, ReplicaId replica, uint64_t number,
                                             bool ok, uint64_t now_us) {
  if (phase_ != Phase::kTraining) return Dropped{DropReason::kUnexpected};
  return advance(mode_->on_averaged(sender, replica, number, ok, now_us), now_us);
}

CoordinatorOutcome Coordination::advance(ModeOutcome outcome, uint64_t now_us) {
  if (outcome.is_dropped()) return Dropped{*outcome.why_dropped()};
  return advance(std::move(outcome).decisions(), now_us);
}

/// What follows for the run from what the mode has decided.
CoordinatorDecisions Coordination::advance(ModeDecisions made, uint64_t now_us) {
  progress_.on_progress(now_us);
  CoordinatorDecisions decisions = std::move(made.orders);
  if (made.completed) append(decisions, log_.on_completed(*made.completed, now_us));
  for (const CoordinatorDecision& decision : decisions) {
    if (const auto* ends = std::get_if<EndRun>(&decision)) return end(ends->status, false);
  }
  if (made.failed) append(decisions, begin_change(*made.failed, now_us));
  return decisions;
}

CoordinatorOutcome Coordination::on_journaled(uint64_t step, uint64_t now_us) {
  if (phase_ != Phase::kTraining) return Dropped{DropReason::kUnexpected};
  CoordinatorOutcome committed = log_.on_journaled(step, now_us);
  if (committed.is_dropped()) return committed;
  CoordinatorDecisions decisions = std::move(committed).decisions();
  auto* commit = std::get_if<BroadcastCommit>(&decisions.front());
  SKEIN_CHECK(commit != nullptr) << "a step that is journaled is broadcast first";
  CommitOrder& order = commit->order;
  if (!order.last) order.turn = mode_->name_turn();
  const uint64_t lent_us = other_jobs_us(*commit, *plan());
  lent_share_ = log_.last_commit_us() > 0
                    ? std::min(1.0, static_cast<double>(lent_us) / log_.last_commit_us())
                    : 0;
  progress_.on_commit(now_us);
  failing_since_us_.reset();
  if (!journal_fault_.empty()) {
    journal_fault_.clear();
    decisions.push_back(RunEvent{"journal.written", "the journal can be written again", {}});
  }
  input_.on_commit();
  // Whoever went while this was being written may have what it made of the step.
  if (!change_after_journal_) absent_.clear();
  // Its workers stay the same.
  if (!std::exchange(has_marked_trained_, true)) {
    mark_hosts([this](WorkerId host) { members_.mark_trained(host, planned_for_); });
  }
  goodput_.on_commit(step, lent_us, now_us);
  const bool ends_run = log_.is_held() && (log_.is_complete() || stop_.is_made());
  if (change_after_journal_) {
    append(decisions, begin_change(*std::exchange(change_after_journal_, std::nullopt), now_us));
  } else if (ends_run && mode_->is_whole()) {
    phase_ = Phase::kFinishing;
    append(decisions, try_finish());
  } else if (log_.is_held()) {
    append(decisions, begin_change(change_reason_, now_us));
  } else {
    append(decisions, begin_work(now_us));
    watches_commit_ = true;
  }
  return decisions;
}

CoordinatorDecisions Coordination::after_commit(uint64_t now_us) {
  if (!std::exchange(watches_commit_, false) || phase_ != Phase::kTraining) return {};
  return watch_timings(now_us);
}

CoordinatorDecisions Coordination::begin_work(uint64_t now_us) {
  return advance(mode_->begin(log_.steps_done(), log_.next_boundary(mode_->commit_steps()), now_us),
                 now_us);
}

CoordinatorOutcome Coordination::on_validated(WorkerId sender, ReplicaId replica, uint64_t step,
                                              double loss_sum, uint64_t loss_tokens,
                                              uint64_t now_us) {
  if (phase_ != Phase::kTraining && phase_ != Phase::kFinishing) {
    return Dropped{DropReason::kUnexpected};
  }
  const CoordinatorOutcome outcome =
      log_.on_validated(sender, replica, step, loss_sum, loss_tokens, now_us);
  if (outcome.is_accepted() && mode_) {
    for (const CoordinatorDecision& each : outcome.decisions()) {
      const auto* validation = std::get_if<ReportValidation>(&each);
      if (validation != nullptr) mode_->on_validation(validation->loss);
    }
  }
  return follow(outcome, now_us);
}

CoordinatorOutcome Coordination::on_shard_saved(WorkerId sender, int32_t stage, uint64_t steps_done,
                                                const absl::Status& status, uint64_t now_us) {
  if (phase_ != Phase::kTraining && phase_ != Phase::kFinishing) {
    return Dropped{DropReason::kUnexpected};
  }
  // It was written behind what has been deleted.
  if (log_.takes_late_shard(sender, stage, steps_done)) {
    return CoordinatorDecisions{delete_failed(steps_done)};
  }
  CoordinatorDecisions given_up;
  if (shards_.awaits(stage, steps_done)) {
    // What comes here counts when it is here: its worker has written nothing.
    const bool can_fail = !status.ok() && !log_.check_shard(sender, stage, steps_done);
    if (!can_fail) return Dropped{DropReason::kUnexpected};
    given_up = shards_.on_failed(stage, steps_done, now_us);
  }
  CoordinatorOutcome saved = log_.on_shard_saved(sender, stage, steps_done, status.ok());
  if (saved.is_accepted() && !status.ok()) {
    append(given_up, on_checkpoint_completed(steps_done, status, now_us).decisions());
    return given_up;
  }
  return follow(std::move(saved), now_us);
}

CoordinatorOutcome Coordination::on_shard_sent(WorkerId sender, int32_t stage, uint64_t steps_done,
                                               uint64_t now_us) {
  if (!runs_plan()) return Dropped{DropReason::kUnexpected};
  // One of a checkpoint that has failed is taken, too: it would be in the way of the next.
  const bool is_late = log_.takes_late_shard(sender, stage, steps_done);
  const auto why = log_.check_shard(sender, stage, steps_done);
  if (why && !is_late) return Dropped{*why};
  ReceiveShard shard;
  shard.is_discarded = is_late;
  shard.generation = generation_;
  shard.sender = sender;
  shard.stage = stage;
  shard.stage_count = static_cast<int32_t>(plan()->stages.size());
  shard.layers = plan()->stages[static_cast<size_t>(stage)].layers;
  shard.steps_done = steps_done;
  CoordinatorOutcome sent = shards_.on_sent(shard, now_us);
  if (sent.is_accepted()) log_.on_shard_announced(stage, steps_done);
  if (sent.is_accepted() && !is_late) progress_.on_progress(now_us);
  if (sent.is_dropped() || !shards_.is_news(sender)) return sent;
  CoordinatorDecisions decisions = std::move(sent).decisions();
  decisions.push_back(RunEvent{"checkpoint.sent",
                               absl::StrCat(describe(sender),
                                            " does not see the run folder: the coordinator saves "
                                            "what it sends"),
                               {{"worker", absl::StrCat(sender.value)}}});
  return decisions;
}

CoordinatorOutcome Coordination::on_shard_layer(int32_t stage, uint64_t steps_done,
                                                uint64_t now_us) {
  if (!runs_plan()) return Dropped{DropReason::kUnexpected};
  if (const auto why = shards_.on_layer(stage, steps_done, now_us)) return Dropped{*why};
  progress_.on_progress(now_us);
  return CoordinatorDecisions{};
}

CoordinatorOutcome Coordination::on_shard_received(const ReceiveShard& shard,
                                                   const absl::Status& status, uint64_t now_us) {
  if (!runs_plan()) return Dropped{DropReason::kUnexpected};
  if (shard.generation != generation_) return Dropped{DropReason::kStale};
  CoordinatorOutcome ended = shards_.on_ended(shard.stage, shard.steps_done, now_us);
  if (ended.is_dropped()) {
    // Its files were being written when it was given up.
    if (!status.ok() || !log_.has_failed(shard.steps_done)) return ended;
    return CoordinatorDecisions{delete_failed(shard.steps_done)};
  }
  progress_.on_progress(now_us);
  CoordinatorDecisions decisions = std::move(ended).decisions();
  CoordinatorOutcome saved =
      on_shard_saved(shard.sender, shard.stage, shard.steps_done, status, now_us);
  if (saved.is_dropped()) return decisions;
  append(decisions, std::move(saved).decisions());
  return decisions;
}

/// Whoever sends it hangs, or nothing comes through; the next one may all the same.
CoordinatorDecisions Coordination::give_up_shard(uint64_t now_us) {
  const ReceiveShard* late = runs_plan() ? shards_.overdue(now_us) : nullptr;
  if (late == nullptr) return {};
  const ReceiveShard shard = *late;
  const absl::Status why = absl::UnavailableError(absl::StrCat(
      describe(shard.sender), " does not see the run folder and sends stage ", shard.stage,
      " to the coordinator, but ", shards_.layers_there(), " of ", shard.layers.size(),
      " layers have come, and nothing for ", options_.job.comm.train_timeout_seconds,
      " s; see that it reaches the coordinator's data address, or mount the run folder there"));
  CoordinatorDecisions decisions = {AbandonShard{shard.stage, shard.steps_done}};
  append(decisions, on_shard_received(shard, why, now_us).decisions());
  return decisions;
}

CoordinatorOutcome Coordination::follow(CoordinatorOutcome outcome, uint64_t now_us) {
  if (outcome.is_dropped()) return outcome;
  progress_.on_progress(now_us);
  CoordinatorDecisions decisions = std::move(outcome).decisions();
  append(decisions, try_finish());
  return decisions;
}

CoordinatorOutcome Coordination::on_checkpoint_completed(uint64_t steps_done,
                                                         const absl::Status& status,
                                                         uint64_t now_us) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  if (const auto why = log_.on_checkpoint_completed(steps_done, status.ok(), now_us)) {
    return Dropped{*why};
  }
  CoordinatorDecisions decisions;
  if (status.ok()) reads_.on_whole();
  if (!status.ok()) {
    const bool is_last = phase_ == Phase::kFinishing && steps_done == log_.steps_done();
    decisions.push_back(checkpoint_failed(steps_done, status, is_last));
    append(decisions, clear_failed(steps_done, now_us));
    if (is_last) {
      append(decisions, end(status, false));
      return decisions;
    }
  }
  const bool is_over = log_.is_complete() || stop_.is_made();
  if (status.ok() && !runs_plan() && is_over && log_.is_idle() && !has_unsaved()) {
    // Whoever was lost meanwhile is needed for nothing.
    append(decisions, end(absl::OkStatus(), !log_.is_complete()));
    return decisions;
  }
  append(decisions, try_choose(now_us));  // A plan may have waited for it.
  append(decisions, try_finish());
  return decisions;
}

/// What is on disk of a checkpoint that has failed would take the next one's space, and what is on
/// its way its time.
CoordinatorDecisions Coordination::clear_failed(uint64_t steps_done, uint64_t now_us) {
  CoordinatorDecisions decisions = shards_.discard(steps_done, now_us);
  decisions.push_back(delete_failed(steps_done));
  return decisions;
}

DeletePartials Coordination::delete_failed(uint64_t steps_done) const {
  return {generation_, steps_done, log_.checkpoints_under_way()};
}

CoordinatorOutcome Coordination::on_checkpoint_unreadable(WorkerId worker,
                                                          const std::string& reason,
                                                          uint64_t now_us) {
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  if (phase_ != Phase::kPreparing || !change_.restore().from_checkpoint) {
    return Dropped{DropReason::kUnexpected};
  }
  if (!change_.hosts(worker)) return Dropped{DropReason::kNotAllowed};
  if (!reads_.complain(worker, reason)) return Dropped{DropReason::kRepeated};
  progress_.on_progress(now_us);
  if (!reads_.verify()) return CoordinatorDecisions{};
  return CoordinatorDecisions{
      RunEvent{"checkpoint.unreadable",
               absl::StrCat(describe(worker),
                            " cannot read the checkpoint, which is verified now: ", reason),
               {{"worker", absl::StrCat(worker.value)}, {"reason", reason}}},
      VerifyCheckpoint{log_.durable_step()}};
}

CoordinatorOutcome Coordination::on_layers_wanted(WorkerId worker, uint64_t now_us) {
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  if (phase_ != Phase::kPreparing || !change_.restore().from_checkpoint) {
    return Dropped{DropReason::kUnexpected};
  }
  if (!change_.hosts(worker)) return Dropped{DropReason::kNotAllowed};
  if (!reads_.serve(worker)) return Dropped{DropReason::kRepeated};
  progress_.on_progress(now_us);
  SendLayers order;
  order.generation = generation_;
  order.worker = worker;
  order.layers = hosted_layers(plan()->stages, worker);
  order.steps_done = change_.restore().first_step;
  return CoordinatorDecisions{
      order, RunEvent{"checkpoint.served",
                      absl::StrCat(describe(worker),
                                   " does not see the checkpoint: the coordinator sends it ",
                                   order.layers.size(), " layers"),
                      {{"worker", absl::StrCat(worker.value)}}}};
}

CoordinatorOutcome Coordination::on_checkpoint_verified(const CheckpointVerdict& verdict,
                                                        uint64_t now_us) {
  if (phase_ == Phase::kEnded || !reads_.is_verifying()) return Dropped{DropReason::kUnexpected};
  progress_.on_progress(now_us);
  CoordinatorDecisions decisions;
  for (RunEvent& event : reads_.on_verified(verdict)) decisions.push_back(std::move(event));
  if (!verdict.status.ok()) return end(verdict.status, false);
  const bool is_needed = phase_ == Phase::kPreparing && change_.restore().from_checkpoint;
  if (!reads_.fault().ok()) {
    append(decisions, is_needed ? end(reads_.fault(), false) : try_gather(now_us));
    return decisions;
  }
  const bool is_the_same = verdict.step == log_.durable_step();
  log_.set_durable_step(verdict.step);
  if (is_the_same) {
    append(decisions, lose_complainers(now_us));
  } else if (is_needed) {
    append(decisions, begin_change("the checkpoint is damaged", now_us));
  }
  if (phase_ == Phase::kGathering) append(decisions, dismiss_leavers());
  append(decisions, try_gather(now_us));
  return decisions;
}

CoordinatorOutcome Coordination::on_left_state(uint64_t steps_done, uint64_t now_us) {
  if (phase_ == Phase::kEnded || !reads_.is_seeking()) return Dropped{DropReason::kUnexpected};
  reads_.on_sought();
  progress_.on_progress(now_us);
  // No checkpoint that is whole is newer: one that was there has been damaged, if it was.
  if (steps_done > 0) {
    log_.set_durable_step(steps_done);
    reads_.on_whole();
  }
  // A layout is made anew, in no time, for those who are here by now.
  if (!candidates_.is_planned()) change_.drop_proposal();
  return try_choose(now_us);
}

CoordinatorOutcome Coordination::on_left_state_delayed(const absl::Status& why, uint64_t now_us) {
  if (phase_ == Phase::kEnded || !reads_.is_seeking()) return Dropped{DropReason::kUnexpected};
  progress_.on_progress(now_us);  // It is the disk that is waited for, and no worker.
  CoordinatorDecisions decisions;
  if (auto event = reads_.on_seeking_delayed(std::string(why.message()))) {
    decisions.push_back(*std::move(event));
  }
  return decisions;
}

/// The checkpoint is whole: it is they who cannot read it.
CoordinatorDecisions Coordination::lose_complainers(uint64_t now_us) {
  CoordinatorDecisions decisions;
  for (const auto& [worker, reason] : reads_.take_complaints()) {
    append(decisions, lose(worker,
                           absl::UnavailableError(absl::StrCat(
                               "it cannot read the checkpoint, which is whole here: ", reason)),
                           now_us));
  }
  return decisions;
}

CoordinatorOutcome Coordination::on_timings(WorkerId sender, ReplicaId replica) const {
  if (phase_ != Phase::kTraining && phase_ != Phase::kFinishing) {
    return Dropped{DropReason::kUnexpected};
  }
  if (int64_t{replica.value} >= replica_count(*plan())) return Dropped{DropReason::kUnknown};
  if (replica_of(*plan(), replica).worker != sender) return Dropped{DropReason::kNotAllowed};
  return CoordinatorDecisions{};
}

CoordinatorOutcome Coordination::on_snapshot_kept(WorkerId worker, int32_t stage,
                                                  uint64_t steps_done) {
  if (phase_ != Phase::kTraining) return Dropped{DropReason::kUnexpected};
  if (const auto why = log_.on_snapshot_kept(worker, stage, steps_done)) return Dropped{*why};
  return CoordinatorDecisions{};
}

/// Whoever has become slower or faster is known by the timings of the commit from now on. What is
/// to be done about it, and about the mode, is for the planner to think about.
CoordinatorDecisions Coordination::watch_timings(uint64_t now_us) {
  if (log_.is_held() || change_after_journal_ || stop_.is_made()) return {};
  const PlanReview::Commit commit{log_.steps_done(), log_.last_step_us(), lent_share_,
                                  mode_->last_timings(), generation_};
  const TimingWatch::Observation seen = review_.on_commit(commit);
  CoordinatorDecisions decisions;
  for (const SpeedChange& change : seen.changes) {
    decisions.push_back(RunEvent{"worker.speed_changed",
                                 absl::StrCat(describe(change.worker), ": ", change.reason),
                                 {{"worker", absl::StrCat(change.worker.value)},
                                  {"slowdown", absl::StrCat(change.slowdown)}}});
    measurements_.slow_down(change.worker, change.slowdown);
  }
  append(decisions, review_.look(commit, seen, now_us));
  if (review_.wants_better()) consider_change(now_us);
  append(decisions, follow(review_.try_another(commit)));
  return decisions;
}

// Changes of plan ---------------------------------------------------------------------------------

QuiesceWorker Coordination::quiesce(WorkerId worker) const {
  const uint64_t steps = log_.steps_done();
  // Who waits for a commit whose norm nobody knows takes it for one that is not its own.
  const std::optional<double> norm = log_.last_norm();
  return {worker, generation_, steps, norm.value_or(0), norm ? log_.generation_of(steps) : 0};
}

CoordinatorDecisions Coordination::begin_change(const std::string& reason, uint64_t now_us) {
  if (log_.is_journaling()) {  // The commit goes out first: who quiesces has applied it then.
    change_after_journal_ = reason;
    return {};
  }
  if (phase_ == Phase::kTraining && !log_.is_held()) goodput_.on_abandoned(now_us);
  goodput_.enter(GoodputLedger::Activity::kMoving, now_us);
  phase_ = Phase::kQuiescing;
  generation_ = std::max(generation_, members_.seen_generation()) + 1;
  progress_.on_progress(now_us);
  failures_.clear();
  reads_.begin_generation();
  requests_.forget_all();
  CoordinatorDecisions decisions = log_.end_generation();
  decisions.push_back(EndTransfers{generation_});
  shards_.end_generation();
  mode_.reset();
  if (!reason.empty()) {
    decisions.push_back(RunEvent{"plan.quiesced",
                                 absl::StrCat("changing the plan: ", reason),
                                 {{"generation", absl::StrCat(generation_)}, {"reason", reason}}});
  }
  change_.begin();
  waits_for_holders_ = false;
  if (is_urgent_) change_.drop_proposal();  // It was made for others.
  append(decisions, count_on_full_again(now_us));
  for (const auto& [id, member] : members_.all()) decisions.push_back(quiesce(id));
  append(decisions, try_choose(now_us));  // There may be nobody left.
  return decisions;
}

CoordinatorOutcome Coordination::on_quiesced(WorkerId worker, uint64_t generation,
                                             std::vector<InventoryItem> inventory,
                                             uint64_t now_us) {
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  if (generation != generation_) return Dropped{DropReason::kStale};
  if (phase_ != Phase::kQuiescing) return Dropped{DropReason::kUnexpected};
  // Nobody has given it anything: what it claims would be asked of it, in vain.
  if (!members().at(worker).may_hold_state) inventory.clear();
  // Who was away during a rollback may bring state of the steps that were taken back; and anybody
  // may speak of layers that the model has not.
  const int64_t layers = layer_count(options_.job.model);
  std::erase_if(inventory, [&](const InventoryItem& each) {
    return each.generation != log_.generation_of(each.step) || each.layers.end > layers;
  });
  if (!change_.take_inventory(worker, std::move(inventory))) return Dropped{DropReason::kRepeated};
  progress_.on_progress(now_us);
  return try_choose(now_us);
}

/// Once everybody has quiesced: a plan for those who may take part, if need be with those who would
/// rather leave, or a pause. After a loss a quick rule decides, and the planner's plan follows at a
/// later commit if it pays; otherwise the planner is waited for.
CoordinatorDecisions Coordination::try_choose(uint64_t now_us) {
  if (phase_ != Phase::kQuiescing || !change_.is_quiet(members_.all())) return {};
  if (changes_connection_ || reads_.is_seeking())
    return {};  // Its quiesce, or the answer, follows.
  if (auto waits = wait_for_holders(now_us)) return *std::move(waits);
  const auto proposal = change_.take_proposal(candidates_.able(now_us, Leavers::kWithout));
  if (proposal) return assign(*proposal, 0, now_us);
  RoundQuestion question;
  question.make_plan = review_.mode().make_plan;
  question.make_otherwise = review_.make_otherwise();
  question.request =
      candidates_.request(candidates_.eligible(now_us, Leavers::kWithout), generation_, is_urgent_);
  const auto fewest = stop_.is_made() ? 1 : static_cast<size_t>(options_.job.elastic.min_workers);
  if (members_.some_leave()) {
    ReplanRequest all =
        candidates_.request(candidates_.eligible(now_us, Leavers::kWith), generation_, is_urgent_);
    if (question.request.workers.size() < fewest) {
      question.request = std::move(all);
    } else if (all.workers != question.request.workers) {  // Not only such as have failed.
      question.with_leavers = std::move(all);
    }
  }
  const size_t count = question.request.workers.size();
  if (count < std::max<size_t>(1, fewest)) {
    return pause(absl::StrCat("waiting for workers: ", count,
                              " can take part, elastic.min_workers is ", fewest),
                 now_us);
  }
  const std::vector<WorkerId> able = candidates_.able(now_us, Leavers::kWithout);
  if (!candidates_.is_planned()) {
    change_.ask_for(able);
    return choose(answer(question).chosen, 0, now_us);
  }
  std::vector<WorkerId> reached = unreachable_.without_stubborn(able, now_us);
  if (reached.size() < able.size() && reached.size() >= fewest) {
    // The quick rule keeps those that there are, as it did when the link was tried in vain.
    reached = candidates_.first_allowed(std::move(reached));
    question.without_unreached =
        candidates_.request(std::move(reached), generation_, /*is_urgent=*/false);
  } else if (is_urgent_ || stop_.is_made()) {
    absl::StatusOr<PlannedPipeline> quick = review_.mode().make_quick_plan(question.request);
    if (quick.ok()) {
      change_.ask_for(able);
      quick->plan.mode = review_.mode().name;
      return assign(*std::move(quick), 0, now_us);
    }
  }
  // A run that is to stop has no time for a planner that may be busy with something else.
  if (stop_.is_made()) return choose(answer(question).chosen, 0, now_us);
  // Whoever comes while the planner thinks is for the next change.
  if (requests_.is_asked<RoundQuestion>()) return {};
  change_.ask_for(able);
  question.request.stalls = review_.stalls();
  for (auto* other : {&question.without_unreached, &question.with_leavers}) {
    if (*other) (*other)->stalls = question.request.stalls;
  }
  return requests_.ask({std::move(question)});
}

/// State is rolled back only when nobody who may hold it can still come back. None: no need to
/// wait.
std::optional<CoordinatorDecisions> Coordination::wait_for_holders(uint64_t now_us) {
  const bool waited = std::exchange(waits_for_holders_, false);
  const std::vector<WorkerId> awaited = absent_.awaited(now_us);
  const uint64_t here = change_.newest_step(durable());
  if (awaited.empty() || here >= log_.steps_done()) return std::nullopt;
  waits_for_holders_ = true;
  CoordinatorDecisions decisions;
  if (waited) return decisions;
  const auto left_us = absent_.last_until_us() - now_us;
  decisions.push_back(holders_awaited(awaited, left_us, log_.steps_done(), here));
  return decisions;
}

CoordinatorDecisions Coordination::take(const RoundAnswer& answer, const PlanReady& ready,
                                        uint64_t now_us) {
  if (phase_ != Phase::kQuiescing) return {};
  progress_.on_progress(now_us);
  if (!answer.chosen.ok()) {
    // It says nothing of who has come meanwhile.
    const bool is_of_others = candidates_.able(now_us, Leavers::kWithout) != change_.asked_for();
    if (is_of_others) return try_choose(now_us);
    return choose(answer.chosen, ready.thinking_us, now_us);
  }
  // Somebody may have come or gone while it was being made.
  change_.propose(*answer.chosen);
  CoordinatorDecisions decisions;
  if (!answer.refused.ok()) {
    const std::string why =
        absl::StrCat("there is no other plan: ", std::string(answer.refused.message()));
    decisions = {review_.change_mode(answer.chosen->plan.mode, why)};
  }
  if (!change_.is_quiet(members_.all())) return decisions;
  // Somebody without a part in it may have gone who alone holds what it would take back.
  if (auto waits = wait_for_holders(now_us)) {
    append(decisions, *std::move(waits));
    return decisions;
  }
  const auto chosen = change_.take_proposal(candidates_.able(now_us, Leavers::kWith));
  append(decisions, chosen ? assign(*chosen, ready.thinking_us, now_us) : try_choose(now_us));
  return decisions;
}

CoordinatorDecisions Coordination::choose(const absl::StatusOr<PlannedPipeline>& chosen,
                                          uint64_t planning_us, uint64_t now_us) {
  if (chosen.ok()) return assign(*chosen, planning_us, now_us);
  // What others have trained in an earlier life, or more workers were asked for than can work now,
  // may find room when more are here.
  const bool may_find_room =
      log_.steps_done() > 0 ||
      static_cast<int64_t>(members_.count_able(now_us)) < options_.worker_count;
  const bool lacks_workers = absl::IsUnavailable(chosen.status()) ||
                             (absl::IsResourceExhausted(chosen.status()) && may_find_room);
  if (!has_trained_ && !lacks_workers) return end(chosen.status(), false);
  return pause(std::string(chosen.status().message()), now_us);
}

CoordinatorDecisions Coordination::pause(const std::string& why, uint64_t now_us) {
  const bool is_alone =
      absent_.awaited(now_us).empty();  // Else others will say what they can read.
  if (!has_committed() && input_.is_of_participant() && is_alone) return end(input_.why(), false);
  const bool have_all_failed = members_.count() > 0 && members_.all_have_failed();
  if (have_all_failed && is_alone && !has_committed() && is_bad_input(last_failure_)) {
    return end(last_failure_, false);
  }
  // Those who hold what is to be saved may be on their way back.
  const bool waits = members_.all_have_failed() && !is_alone && has_past() && has_unsaved();
  if (stop_.is_made() && !waits) return end(absl::OkStatus(), true);
  stop_waits_until_us_ = now_us + return_us(options_.job);
  most_gathered_ = members_.count();
  paused_why_ = why;
  is_urgent_ = false;  // Who comes gets a plan that is made for all.
  phase_ = Phase::kGathering;
  goodput_.enter(GoodputLedger::Activity::kWaiting, now_us);
  // Whoever comes is welcome now: not all of the first workers are waited for.
  has_trained_ = true;
  progress_.on_progress(now_us);
  requests_.forget_all();
  change_.pause();
  change_at_us_ = members_.next_eligible_us(now_us);
  return {RunEvent{"run.paused", why, {{"reason", why}}}};
}

CoordinatorDecisions Coordination::assign(PlannedPipeline chosen, uint64_t planning_us,
                                          uint64_t now_us) {
  requests_.forget_all();
  const std::optional<RunEvent> routed = keep_apart(chosen, now_us);
  chosen.plan.generation = generation_;
  review_.on_chosen(chosen);
  const RestoreDecision restored = change_.restore_of(chosen.plan, durable());
  const uint64_t first_step = restored.first_step;
  if (log_.completes_beyond(first_step)) {
    // What is newer than all else is about to be on disk; and nothing older is deleted meanwhile.
    change_.propose(std::move(chosen));
    return {RunEvent{"checkpoint.awaited", "waiting for a checkpoint that is almost complete", {}}};
  }
  const bool may_be_left = options_.job.checkpoint.enable && !reads_.has_sought();
  if (first_step < log_.steps_done() && may_be_left) return seek_left_state(std::move(chosen));
  // Nothing is there that could be saved: who is away may come back to the next life with more.
  if (stop_.is_made() && restored.from_checkpoint) return end(absl::OkStatus(), true);
  change_.assign(chosen.plan, members_.all(), durable());
  planned_for_ =
      who_reach_one_another(unreachable_.at(now_us), candidates_.able(now_us, Leavers::kWithout))
          .size();
  const size_t asked_for = change_.asked_for().size();
  if (asked_for > 0) planned_for_ = std::min(planned_for_, asked_for);
  if (change_.restore().from_checkpoint && !reads_.fault().ok()) return end(reads_.fault(), false);
  for (const auto& [id, member] : members()) {
    if (takes_part(id)) members_.mark_holder(id);
  }
  phase_ = Phase::kPreparing;
  progress_.on_progress(now_us);
  const RestoreDecision& restore = change_.restore();
  CoordinatorDecisions decisions = {change_.describe(chosen, has_trained_, planning_us)};
  if (routed) decisions.push_back(*routed);
  if (restore.first_step < log_.steps_done()) {
    decisions.push_back(run_rolled_back(log_.steps_done(), restore, change_.describe_inventories(),
                                        absent_.describe()));
  }
  decisions.push_back(AssignPlan{*plan(), chosen.objective_us, restore, change_.snapshot_peers(),
                                 log_.generation_of(restore.first_step),
                                 action_times(*plan(), measurements_.all())});
  return decisions;
}

/// While we were paused, or cut off, workers may have given us up.
CoordinatorDecisions Coordination::seek_left_state(PlannedPipeline chosen) {
  change_.propose(std::move(chosen));
  reads_.seek();
  return {SeekLeftState{log_.steps_done(), log_.generations(), log_.last_loss()}};
}

/// Those who cannot reach one another are no neighbours in the plan, and exchange no state. A plan
/// that would take back steps for that is made only when the links were tried once more.
std::optional<RunEvent> Coordination::keep_apart(PlannedPipeline& chosen, uint64_t now_us) {
  RouteAroundRequest request;
  request.apart = unreachable_.at(now_us);
  change_.set_apart(request.apart);
  if (request.apart.empty()) return std::nullopt;
  request.workers = candidates_.able(now_us, Leavers::kWithout);
  request.newest_step = change_.newest_step(durable());
  request.may_lose_steps = unreachable_.were_tried_again(now_us);
  request.first_step = [this](const Plan& plan) {
    return change_.restore_of(plan, durable()).first_step;
  };
  if (candidates_.is_planned()) {
    request.fits = [asked = candidates_.request(request.workers, generation_, false)](
                       const Plan& plan) { return check_fits(asked, plan).ok(); };
  }
  request.make_plan =
      [&, this](const std::vector<WorkerId>& others) -> absl::StatusOr<PlannedPipeline> {
    const ReplanRequest asked = candidates_.request(candidates_.first_allowed(others), generation_,
                                                    candidates_.is_planned());
    if (static_cast<int64_t>(asked.workers.size()) < options_.job.elastic.min_workers) {
      return absl::UnavailableError("elastic.min_workers");
    }
    if (!candidates_.is_planned()) {
      return review_.mode().make_plan(asked);
    }
    absl::StatusOr<PlannedPipeline> quick = review_.mode().make_quick_plan(asked);
    if (quick.ok()) quick->plan.mode = review_.mode().name;
    return quick;
  };
  const std::string who = unreachable_.describe(now_us);
  RoutedAround routed = route_around(chosen, request);
  if (!routed.is_apart) {
    unreachable_.try_again(now_us);
    change_.set_apart({});
    return RunEvent{"link.tried_again",
                    absl::StrCat(who, ", and no plan can do without: the link is tried once more"),
                    {{"reason", who}}};
  }
  chosen = std::move(routed.chosen);
  const std::string how =
      routed.difference.empty() ? "they are no neighbours in the plan" : routed.difference;
  return RunEvent{"plan.routed_around",
                  absl::StrCat(who, ": ", how),
                  {{"reason", who}, {"difference", routed.difference}}};
}

CoordinatorOutcome Coordination::on_prepared(WorkerId worker, uint64_t generation, uint64_t now_us,
                                             const TurnReport& turns) {
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  if (generation != generation_) return Dropped{DropReason::kStale};
  if (phase_ != Phase::kPreparing) return Dropped{DropReason::kUnexpected};
  if (!change_.take_prepared(worker, turns)) return Dropped{DropReason::kRepeated};
  progress_.on_progress(now_us);
  return try_start(now_us);
}

CoordinatorDecisions Coordination::try_start(uint64_t now_us) {
  return change_.is_everybody_prepared() ? start(now_us) : CoordinatorDecisions{};
}

CoordinatorDecisions Coordination::start(uint64_t now_us) {
  CoordinatorDecisions decisions;
  const uint64_t first_step = change_.restore().first_step;
  const bool goes_back = first_step < log_.steps_done();
  if (goes_back) {
    // Only now: if the plan had not come about, who has the newer state might have come back.
    goodput_.on_rollback(first_step, now_us);
    decisions.push_back(RewindJournal{first_step});
  }
  mode_ = find_mode(modes_or_own(options_.modes), plan()->mode).make(options_.job, *plan());
  CommitOrder order = log_.begin_generation(*plan(), change_.snapshot_peers(), first_step,
                                            mode_->leaves_commits_behind(), now_us);
  for (const auto& [worker, turns] : change_.prepared()) mode_->on_turn_report(worker, turns);
  order.turn = mode_->name_turn();
  phase_ = order.last ? Phase::kFinishing : Phase::kTraining;
  change_.start();
  // Else those who are away may hold the step that it starts with, until there is another one.
  if (goes_back) absent_.clear();
  goodput_.enter(GoodputLedger::Activity::kTraining, now_us);
  const bool was_urgent = std::exchange(is_urgent_, false);
  const uint64_t next = steps_done() + 1;
  decisions.push_back(StartRun{order});
  lost_why_.clear();
  input_.on_started();
  mark_hosts([this](WorkerId host) { members_.mark_started(host); });
  has_marked_trained_ = false;
  decisions.push_back(delete_failed(0));  // Nobody writes files of older plans any more.
  decisions.push_back(RunEvent{
      has_trained_ ? "run.continued" : "run.started",
      log_.is_complete() ? all_done(options_.job, order)
                         : absl::StrCat("training ", has_trained_ ? "goes on" : "starts",
                                        " at step ", next, " of ", options_.job.training.steps),
      {{"step", absl::StrCat(next)}, {"generation", absl::StrCat(generation_)}}});
  has_trained_ = true;
  if (phase_ == Phase::kTraining) append(decisions, begin_work(now_us));
  append(decisions, dismiss_leavers());
  append(decisions, review_.begin_generation(was_urgent));
  // Whoever came or asked to leave meanwhile; and a plan that was made in a hurry may have a
  // better.
  const bool has_other_members = std::any_of(
      members().begin(), members().end(),
      [this](const auto& each) { return change_.hosts(each.first) == each.second.leaves; });
  if (was_urgent || has_other_members) consider_change(now_us);
  append(decisions, try_finish());
  return decisions;
}

/// While there is no plan in force, whoever had a part in the last one may hold what is committed
/// and not on disk, or only in a checkpoint that nobody has read yet.
bool Coordination::needs_what_it_holds(const Member& member) const {
  const bool has_plan = phase_ == Phase::kTraining || phase_ == Phase::kFinishing;
  const bool is_durable = log_.steps_done() == log_.durable_step() && !reads_.is_verifying();
  return !has_plan && member.may_hold_state && !is_durable;
}

/// Lets go those who asked to leave and hold nothing any more.
CoordinatorDecisions Coordination::dismiss_leavers() {
  std::vector<WorkerId> gone;
  for (const auto& [id, member] : members()) {
    // Who lacked memory may have a part when more have come.
    const bool may_help = phase_ == Phase::kGathering && member.lacked_of != 0;
    const bool is_needed = change_.hosts(id) || needs_what_it_holds(member) || may_help;
    if (member.leaves && !is_needed) gone.push_back(id);
  }
  CoordinatorDecisions decisions;
  for (WorkerId id : gone) {
    const char* what = members().at(id).may_hold_state ? "its state has moved" : "it held nothing";
    decisions.push_back(RunEvent{"worker.left",
                                 absl::StrCat(describe(id), " has left; ", what),
                                 {{"worker", absl::StrCat(id.value)}},
                                 /*anybody_may_cause=*/true});
    decisions.push_back(StopWorker{id, "drained"});
    members_.remove(id);
    append(decisions, forget(id));
  }
  return decisions;
}

void Coordination::consider_change(uint64_t at_us) {
  change_at_us_ = change_at_us_ ? std::min(*change_at_us_, at_us) : at_us;
}

/// The plan in force may be changed at its next commit.
bool Coordination::may_change_plan() const {
  return phase_ == Phase::kTraining && !change_after_journal_ && !stop_.is_made();
}

/// If the members of the run have changed, another plan may be better: it comes after the step in
/// progress.
CoordinatorDecisions Coordination::check_change(uint64_t now_us) {
  if (!may_change_plan() || !change_at_us_ || now_us < *change_at_us_) return {};
  if (requests_.is_asked<ChangeQuestion>()) return {};  // Its answer is for those who were here.
  change_at_us_ = members_.next_eligible_us(now_us);
  CoordinatorDecisions decisions = count_on_full_again(now_us);
  if (const auto end_us = unreachable_.next_end_us(now_us)) consider_change(*end_us);
  append(decisions,
         follow(review_.seek_better(unreachable_.at(now_us), generation_, steps_done(), now_us)));
  return decisions;
}

/// Somebody may work now who could not when others lacked memory.
CoordinatorDecisions Coordination::count_on_full_again(uint64_t now_us) {
  const bool are_some = members_.count_on_full_again(unreachable_.at(now_us), now_us);
  if (are_some && phase_ == Phase::kGathering) consider_change(now_us);
  return are_some && candidates_.is_planned() ? measurements_.request(members())
                                              : CoordinatorDecisions{};
}

CoordinatorDecisions Coordination::follow(PlanReview::Advice advice) {
  if (!advice.reason.empty()) hold_for_change(advice.reason);
  return std::move(advice.decisions);
}

CoordinatorOutcome Coordination::on_plan_ready(const PlanReady& ready, uint64_t now_us) {
  PlannerRequests::Answered answered = requests_.on_ready(ready.id);
  if (!answered.is_known || phase_ == Phase::kEnded) return Dropped{DropReason::kStale};
  CoordinatorDecisions decisions = std::move(answered.next);
  if (!answered.is_wanted) return decisions;
  const auto& what = ready.answer.what;
  if (const auto* round = std::get_if<RoundAnswer>(&what)) {
    append(decisions, take(*round, ready, now_us));
  } else if (const auto* expectation = std::get_if<ExpectationAnswer>(&what)) {
    review_.take(*expectation);
  } else if (may_change_plan()) {
    append(decisions, follow(review_.take(ready.answer, steps_done(), log_.holds())));
  }
  return decisions;
}

/// The next commit is the last one of the plan.
void Coordination::hold_for_change(const std::string& reason) {
  change_reason_ = reason;
  log_.hold();
  mode_->cut_short();
}

// Measurements ------------------------------------------------------------------------------------

CoordinatorDecisions Coordination::start_profiling(uint64_t now_us) {
  phase_ = Phase::kProfiling;
  progress_.on_progress(now_us);
  CoordinatorDecisions decisions = {
      RunEvent{"profile.started",
               absl::StrCat("measuring ", members_.count(), " devices and the links between them"),
               {}}};
  append(decisions, measurements_.tell_peers(members()));
  append(decisions, measurements_.request(members()));
  append(decisions, try_finish_profiling(now_us));
  return decisions;
}

CoordinatorOutcome Coordination::on_profiled(WorkerId worker, MeasuredWorker measured,
                                             uint64_t now_us) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  if (!measurements_.is_asked(worker)) return Dropped{DropReason::kUnexpected};
  measurements_.take(members().at(worker), std::move(measured));
  progress_.on_progress(now_us);
  CoordinatorDecisions decisions = measurements_.request(members());
  if (phase_ != Phase::kProfiling) {
    decisions.push_back(measurements_.describe(worker));
    consider_change(now_us);
    return decisions;
  }
  append(decisions, try_finish_profiling(now_us));
  return decisions;
}

CoordinatorDecisions Coordination::try_finish_profiling(uint64_t now_us) {
  if (!measurements_.has_all(members())) return {};
  std::vector<MeasuredWorker> workers =
      measurements_.of(candidates_.eligible(now_us, Leavers::kWithout));
  // Where all are to leave, the plan is made with them, as they stay until others come.
  if (workers.empty()) workers = measurements_.of(candidates_.eligible(now_us, Leavers::kWith));
  if (workers.empty()) {
    // All are held back, or cannot go on: the change of plan pauses until somebody may work.
    return options_.only_profiles ? CoordinatorDecisions{} : begin_change("", now_us);
  }
  CoordinatorDecisions decisions = {
      ReportProfiles{workers.front().profile, measured_cluster(options_.job, workers)}};
  append(decisions,
         options_.only_profiles ? end(absl::OkStatus(), false) : begin_change("", now_us));
  return decisions;
}

// Members -----------------------------------------------------------------------------------------

CoordinatorOutcome Coordination::on_join(PeerNumber peer, JoinRequest request, uint64_t now_us) {
  if (members_.has_peer(peer)) return Dropped{DropReason::kRepeated};
  if (!request.run.empty() && request.run != options_.run) return refuse_other_run(peer, request);
  if (phase_ == Phase::kEnded || (options_.only_profiles && phase_ != Phase::kGathering)) {
    return CoordinatorDecisions{RefusePeer{peer, "the run takes no more workers", {}}};
  }
  if (request.generation > generation_ + kUnknownChangesMax) {
    return CoordinatorDecisions{RefusePeer{
        peer, absl::StrCat("you have seen plan ", request.generation,
                           ", which is none of this run: ", "it is at plan ", generation_)}};
  }
  CoordinatorDecisions decisions;
  if (const auto before = members_.same_process(request)) {
    // Its old connection is dead, and we have not heard of it.
    const std::string why = "it has connected anew";
    changes_connection_ = true;
    append(decisions, progress_.is_catching_up(now_us)
                          ? set_aside(*before, why, now_us)
                          : lose(*before, absl::UnavailableError(why), now_us));
    changes_connection_ = false;
    if (phase_ == Phase::kEnded) return decisions;
    absent_.on_back(*before, now_us);
    if (request.previous.value != 0) request.previous = *before;
  }
  append(decisions, welcome(peer, std::move(request), now_us));
  return decisions;
}

/// What it holds is of its own run, and so would be what it wrote.
CoordinatorDecisions Coordination::refuse_other_run(PeerNumber peer, const JoinRequest& request) {
  const std::string runs =
      absl::StrCat("this worker serves run ", request.run, ", here is run ", options_.run);
  CoordinatorDecisions decisions = {RefusePeer{peer, runs, options_.run}};
  const bool is_new =
      refused_runs_.size() < kRefusedRunsMax && refused_runs_.insert(request.run).second;
  if (!is_new) return decisions;
  decisions.push_back(worker_refused(request, runs));
  return decisions;
}

/// A life that ended without a plan has given numbers, and the next one gives them again: who has
/// seen none of the plans that a number is in is not the one that is waited for.
bool Coordination::has_number_of_another(const JoinRequest& request) const {
  const auto known = options_.earlier_workers.find(request.previous);
  return known != options_.earlier_workers.end() && request.generation < known->second;
}

CoordinatorDecisions Coordination::welcome(PeerNumber peer, JoinRequest request, uint64_t now_us) {
  // A worker that was one knows the run: whoever does not is none of ours.
  if (request.run != options_.run || has_number_of_another(request)) request.previous = {};
  const bool is_back = request.previous.value != 0 && !members_.has(request.previous);
  absent_.on_back(request.previous, now_us);
  const bool has_other_config =
      request.config_digest != 0 && request.config_digest != options_.config_digest;
  const Member& member = members_.admit(peer, std::move(request), has_trained_, now_us);
  const WorkerId worker = member.id;
  failing_since_us_.reset();
  if (phase_ == Phase::kGathering && members_.count() > most_gathered_) {
    // Who comes and goes does not bring the run any further.
    most_gathered_ = members_.count();
    progress_.on_progress(now_us);
  }
  CoordinatorDecisions decisions = {
      WelcomeWorker{peer, worker},
      worker_joined(member, is_back, members_.count(), options_.worker_count)};
  if (member.eligible_us > now_us) decisions.push_back(worker_held_back(member, now_us));
  if (has_other_config) decisions.push_back(worker_reconfigured(worker));
  const bool gathers_first = phase_ == Phase::kGathering && !has_trained_;
  members_.count_on_full_again(unreachable_.at(now_us), now_us);
  if (candidates_.is_planned() && !gathers_first) {
    append(decisions, measurements_.tell_peers(members()));
    append(decisions, measurements_.request(members()));
  }
  if (phase_ == Phase::kGathering) {
    if (has_trained_) consider_change(now_us + kSettleUs);
    append(decisions, try_gather(now_us));
  } else if (phase_ == Phase::kQuiescing) {
    if (members_.seen_generation() < generation_) {
      decisions.push_back(quiesce(worker));
    } else {  // It would take this generation's quiesce for one that it has answered.
      append(decisions, begin_change("a worker is back that has seen this generation", now_us));
    }
  } else if (phase_ != Phase::kProfiling) {
    consider_change(std::max(now_us + kSettleUs, member.eligible_us));
  }
  return decisions;
}

/// Whether all who may hold state are here again after a restart of the coordinator: the workers of
/// the last plan or, if some do not come back, as many as the job can do with.
bool Coordination::is_everybody_back(uint64_t now_us) const {
  if (static_cast<int64_t>(members_.count()) < options_.job.elastic.min_workers) return false;
  if (!options_.awaits_last_workers &&
      static_cast<int64_t>(members_.count()) >= options_.worker_count) {
    return true;
  }
  return now_us >= members_.last_join_us() + kRejoinUs || members_.has_all_of(*options_.last_plan);
}

/// Goes on when there are enough workers: all that were asked for at first; after a pause, or a
/// restart of the coordinator, as many as the job can do with.
CoordinatorDecisions Coordination::try_gather(uint64_t now_us) {
  if (phase_ != Phase::kGathering) return {};
  if (stop_.is_made()) return save_or_end(now_us);
  if (reads_.is_verifying()) return {};
  if (!has_trained_) {
    const bool enough = options_.last_plan
                            ? is_everybody_back(now_us)
                            : static_cast<int64_t>(members_.count()) >= options_.worker_count;
    if (!enough) return {};
    if (candidates_.is_planned() || options_.only_profiles) return start_profiling(now_us);
    return begin_change("", now_us);
  }
  CoordinatorDecisions decisions = count_on_full_again(now_us);
  int64_t count = 0;
  bool all_known = true;
  for (const auto& [id, member] : members()) {
    if (!members_.may_work(member, now_us, Leavers::kWithout)) continue;
    ++count;
    all_known = all_known && (measurements_.has(id) || !candidates_.is_planned());
  }
  const bool settled = change_at_us_ && now_us >= *change_at_us_;
  if (count < options_.job.elastic.min_workers || !settled) return decisions;
  change_at_us_.reset();
  append(decisions, all_known ? begin_change("the minimum number of workers is available", now_us)
                              : start_profiling(now_us));
  return decisions;
}

CoordinatorOutcome Coordination::on_heartbeat(WorkerId worker, WorkerActivity activity,
                                              uint64_t now_us) {
  const auto member = members().find(worker);
  const std::string before = member == members().end() ? "" : member->second.activity.device;
  CoordinatorOutcome outcome = members_.on_heartbeat(worker, std::move(activity), now_us);
  if (outcome.is_dropped() || !options_.job.tokens.reproducible) return outcome;
  const std::string& device = member->second.activity.device;
  std::optional<RunEvent> unlike;
  if (device != before) unlike = like_devices_.on_device(worker, device);
  if (!unlike) return outcome;
  CoordinatorDecisions decisions = std::move(outcome).decisions();
  decisions.push_back(*std::move(unlike));
  return decisions;
}

CoordinatorOutcome Coordination::on_worker_lost(WorkerId worker, const absl::Status& why,
                                                uint64_t now_us) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  // One that says why it ends does not come back.
  if (!absl::IsUnavailable(why)) return lose(worker, why, now_us);
  if (progress_.may_be_cut_off(members().at(worker), now_us)) {
    return set_aside(worker, std::string(why.message()), now_us);
  }
  return lose(worker, why, now_us, /*may_return=*/true);
}

CoordinatorOutcome Coordination::on_worker_gone(const std::string& address, uint64_t now_us) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  if (!absent_.on_gone(address)) return Dropped{DropReason::kUnknown};
  return waits_for_holders_ ? try_choose(now_us) : CoordinatorDecisions{};
}

/// All that is known of the worker is that its connection has ended: it may live, and be back
/// within its lease and a few attempts to connect, or half of the time that the next plan may take,
/// with what it holds.
CoordinatorDecisions Coordination::await_return(const Member& member, const std::string& why,
                                                uint64_t now_us) {
  // Whoever waits for longer than the run has for its next step ends it.
  const double wait_s =
      std::min(return_seconds(options_.job), options_.job.comm.init_timeout_seconds / 2);
  const std::string& address = member.request.data_address;
  absent_.await(member.id, why, patience_of(options_.job, wait_s), address, now_us);
  return {CheckListener{address}};
}

/// Who is no member any more. If its measurement was awaited, others may be asked for another one.
CoordinatorDecisions Coordination::forget(WorkerId worker) {
  unreachable_.forget(worker);
  change_.forget(worker);
  return measurements_.forget(worker) ? measurements_.request(members()) : CoordinatorDecisions{};
}

/// Its connection was lost while we were paused: it may have given up on us, and come back.
CoordinatorDecisions Coordination::set_aside(WorkerId worker, const std::string& why,
                                             uint64_t now_us) {
  if (phase_ == Phase::kEnded || !members_.has(worker)) return {};
  CoordinatorDecisions decisions = {
      RunEvent{"worker.away",
               absl::StrCat(describe(worker), " is away since the coordinator was paused: ", why),
               {{"worker", absl::StrCat(worker.value)}, {"reason", why}},
               /*anybody_may_cause=*/!takes_part(worker)},
      DismissWorker{worker}};
  append(decisions, await_return(members().at(worker), why, now_us));
  members_.remove(worker);
  append(decisions, forget(worker));
  append(decisions, go_on_without(worker, absl::StrCat("w", worker.value, " is lost"), now_us));
  return decisions;
}

CoordinatorDecisions Coordination::lose(WorkerId worker, const absl::Status& why, uint64_t now_us,
                                        bool may_return) {
  if (phase_ == Phase::kEnded || !members_.has(worker)) return {};  // By what was lost before it.
  const Mishap mishap = mishap_of(describe(worker), steps_done(), why);
  const bool has_part = takes_part(worker);
  RunEvent told = worker_lost(worker, mishap.who, mishap.step, why);
  told.anybody_may_cause = !has_part;
  CoordinatorDecisions decisions = {std::move(told), DismissWorker{worker}};
  // Until a plan starts, those of the one before may hold what nobody else has.
  if (members().at(worker).may_hold_state) {
    const std::string reason(why.message());
    if (may_return) {
      append(decisions, await_return(members().at(worker), reason, now_us));
    } else {
      absent_.give_up(worker, reason);
    }
  }
  if (!changes_connection_) lost_why_ = std::string(mishap.blame.message());
  const Member lost = members().at(worker);
  // While others train, one that measures has read nothing that they have not.
  const bool measures = !has_trained_ && measurements_.is_asked(worker);
  members_.lose(worker, change_.hosts(worker), now_us);
  CoordinatorDecisions asked = forget(worker);
  const bool is_input_bad =
      (has_part || measures) && accuse_input(lost, has_part, mishap.blame, now_us);
  if (is_input_bad || (options_.only_profiles && phase_ != Phase::kGathering)) {
    append(decisions, end(mishap.blame, false));
    return decisions;
  }
  append(decisions, std::move(asked));
  append(decisions, go_on_without(worker, absl::StrCat("w", worker.value, " is lost"), now_us));
  return decisions;
}

/// Whether what the workers read is at fault, by one that has gone or computes no more.
bool Coordination::accuse_input(const Member& accuser, bool takes_part, const absl::Status& blame,
                                uint64_t now_us) {
  const bool is_deserted = members_.all_have_failed() && absent_.awaited(now_us).empty();
  return input_.accuse(blame, {accuser.id, takes_part, accuser.has_started, accuser.has_trained},
                       {has_past(), has_committed(), is_deserted});
}

/// Those who have a part in the plan.
void Coordination::mark_hosts(const std::function<void(WorkerId)>& mark) {
  for (const auto& [id, member] : members()) {
    if (change_.hosts(id)) mark(id);
  }
}

CoordinatorDecisions Coordination::go_on_without(WorkerId worker, const std::string& reason,
                                                 uint64_t now_us, bool lacks_memory) {
  const bool hosts = change_.hosts(worker);
  if (phase_ != Phase::kProfiling && hosts) is_urgent_ = !lacks_memory;
  switch (phase_) {
    case Phase::kProfiling:
      // The others were measured with it; a worker that takes its place is measured like them.
      phase_ = Phase::kGathering;
      progress_.on_progress(now_us);
      consider_change(now_us + kSettleUs);
      return {};
    case Phase::kQuiescing:
      if (hosts) change_.drop_proposal();
      return try_choose(now_us);
    case Phase::kPreparing:
      return hosts || change_.gives_state(worker) ? begin_change(reason, now_us)
                                                  : CoordinatorDecisions{};
    case Phase::kTraining: {
      if (!hosts) return {};
      if (!mode_->survives_losses()) return begin_change(reason, now_us);
      // The others go on, and make a new plan when they meet, which is soon. The loss explains what
      // it was part of. One that is still here gives nothing that they have not got.
      failures_.explain(worker);
      ModeDecisions made = mode_->lose(worker, now_us);
      hold_for_change(reason);
      return advance(std::move(made), now_us);
    }
    case Phase::kFinishing:
      return hosts ? begin_change(reason, now_us) : CoordinatorDecisions{};
    case Phase::kGathering:
    case Phase::kEnded:
      return {};
  }
  return {};
}

CoordinatorOutcome Coordination::on_peer_failure(WorkerId worker, WorkerId peer,
                                                 const std::string& reason, uint64_t now_us) {
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  if (!runs_plan()) return Dropped{DropReason::kUnexpected};
  // Others have gone on without one that is lost, and its neighbours hear of it as late as this.
  if (peer.value != 0 && !members_.has(peer)) return Dropped{DropReason::kUnknown};
  const bool is_of_plan = takes_part(worker) && (peer.value == 0 || takes_part(peer));
  if (!is_of_plan) return Dropped{DropReason::kNotAllowed};
  std::string text = absl::StrCat(describe(worker), " at step ", steps_done() + 1, ": ", reason);
  if (!failures_.add(worker, peer, std::move(text), now_us)) {
    return Dropped{DropReason::kRepeated};
  }
  return CoordinatorDecisions{};
}

CoordinatorOutcome Coordination::on_unreachable(WorkerId worker, WorkerId peer,
                                                const std::string& reason, uint64_t now_us) {
  if (worker == peer) return Dropped{DropReason::kNotAllowed};
  CoordinatorOutcome outcome = on_peer_failure(worker, peer, reason, now_us);
  // A worker that has reported it in another way is believed all the same.
  const bool is_repeat = outcome.is_dropped() && *outcome.why_dropped() == DropReason::kRepeated;
  if (peer.value == 0 || (outcome.is_dropped() && !is_repeat)) return outcome;
  if (!unreachable_.add(worker, peer, generation_, now_us)) return outcome;
  return CoordinatorDecisions{
      RunEvent{"link.unreachable",
               absl::StrCat(describe(worker), " does not reach ", describe(peer),
                            ", and the coordinator reaches both: ", reason),
               {{"worker", absl::StrCat(worker.value)},
                {"peer", absl::StrCat(peer.value)},
                {"reason", reason}}}};
}

CoordinatorOutcome Coordination::on_worker_failed(WorkerId worker, const absl::Status& why,
                                                  uint64_t now_us) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  // A plan may be older than the last who came.
  const bool hosts = change_.hosts(worker);
  const size_t of = std::max<size_t>(1, hosts ? planned_for_ : members_.count_able(now_us));
  if (!members_.mark_failed(worker, is_bad_input(why) ? 0 : of, hosts, now_us)) {
    return Dropped{DropReason::kRepeated};
  }
  const Mishap mishap = mishap_of(describe(worker), steps_done(), why);
  const bool has_part = takes_part(worker);
  RunEvent told = worker_failed(worker, mishap.who, mishap.step, why);
  told.anybody_may_cause = !has_part;
  CoordinatorDecisions decisions = {std::move(told)};
  last_failure_ = mishap.blame;
  if (has_part && accuse_input(members().at(worker), has_part, mishap.blame, now_us)) {
    append(decisions, end(mishap.blame, false));
    return decisions;
  }
  if (measurements_.forget(worker)) append(decisions, measurements_.request(members()));
  const std::string reason = absl::StrCat("w", worker.value, " cannot go on");
  if (phase_ == Phase::kProfiling) append(decisions, go_on_without(worker, reason, now_us));
  const bool is_at_work = phase_ == Phase::kQuiescing || phase_ == Phase::kPreparing || runs_plan();
  // Its step will not end.
  append(decisions, is_at_work && hosts
                        ? go_on_without(worker, reason, now_us, /*lacks_memory=*/!is_bad_input(why))
                        : let_leave(worker, now_us));
  return decisions;
}

CoordinatorOutcome Coordination::on_leave(WorkerId worker, const std::string& reason,
                                          uint64_t now_us) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  if (!members_.has(worker)) return Dropped{DropReason::kUnknown};
  if (!members_.mark_leaving(worker)) return Dropped{DropReason::kRepeated};
  CoordinatorDecisions decisions = {
      RunEvent{"worker.leaving",
               absl::StrCat(describe(worker), " is to leave: ", reason),
               {{"worker", absl::StrCat(worker.value)}, {"reason", reason}},
               /*anybody_may_cause=*/!takes_part(worker)}};
  append(decisions, let_leave(worker, now_us));
  return decisions;
}

/// A worker that is to leave does so when nobody needs what it holds.
CoordinatorDecisions Coordination::let_leave(WorkerId worker, uint64_t now_us) {
  CoordinatorDecisions decisions;
  if (phase_ == Phase::kGathering && needs_what_it_holds(members().at(worker))) {
    decisions.push_back(RunEvent{"worker.cannot_leave",
                                 absl::StrCat("w", worker.value,
                                              " may hold state that is nowhere "
                                              "else: it stays until others can take it over"),
                                 {{"worker", absl::StrCat(worker.value)}},
                                 /*anybody_may_cause=*/!takes_part(worker)});
  } else if (phase_ == Phase::kGathering) {
    append(decisions, dismiss_leavers());
  } else if (may_change_plan() && !change_.hosts(worker)) {
    append(decisions, dismiss_leavers());  // No plan is better without it.
  } else {
    consider_change(now_us);
    append(decisions, check_change(now_us));
  }
  return decisions;
}

std::string Coordination::describe(WorkerId worker) const {
  const Member& member = members().at(worker);
  std::string text = absl::StrCat("w", worker.value, " (pid ", member.request.process_id, " on ",
                                  member.request.host_name);
  const auto hosted = change_.hosted().find(worker);
  if (hosted != change_.hosted().end() && plan()) {
    absl::StrAppend(&text, ", stage ", stage_of(*plan(), *hosted->second.begin()));
  }
  if (!member.activity.action.empty()) {
    absl::StrAppend(&text, member.activity.works ? ", computing " : ", waiting for ",
                    member.activity.action);
  }
  return absl::StrCat(text, ")");
}

// Time-outs ---------------------------------------------------------------------------------------

CoordinatorDecisions Coordination::on_timer(uint64_t now_us) {
  // Nobody is late while the disk is read.
  if (reads_.is_reading() && phase_ != Phase::kTraining) progress_.on_progress(now_us);
  CoordinatorDecisions decisions;
  // While it catches up after a pause, everybody has that much longer, and not for ever, as there
  // may be one pause after the other.
  const uint64_t judged_us =
      progress_.is_catching_up(now_us) ? now_us - std::min(now_us, kRejoinUs) : now_us;
  append(decisions, lose_silent(judged_us, now_us));
  append(decisions, lose_slow_to_answer(judged_us, now_us));
  if (waits_for_holders_) append(decisions, try_choose(now_us));
  const auto is_silent = [&](WorkerId worker) { return members_.is_silent(worker, now_us); };
  if (const auto reason = failures_.overdue(now_us, is_silent); reason && runs_plan()) {
    append(decisions, change_for_failure(*reason, now_us));
  }
  if (phase_ == Phase::kTraining && mode_->wake_us() && now_us >= *mode_->wake_us()) {
    ModeDecisions made = mode_->on_timer(now_us);
    // That a policy looks at the time is no progress.
    const bool is_news = !made.orders.empty() || made.completed || made.failed;
    if (is_news) append(decisions, advance(std::move(made), now_us));
  }
  append(decisions, check_change(now_us));
  append(decisions, try_gather(now_us));
  append(decisions, give_up_shard(now_us));
  append(decisions, check_stop(now_us));
  append(decisions, check_progress(now_us));
  return decisions;
}

/// Another plan, unless one after the other has failed for as long as one may take to be prepared
/// and to get a step further. With links that are known not to work, plans without them are tried.
CoordinatorDecisions Coordination::change_for_failure(const std::string& reason, uint64_t now_us) {
  const double longest_s =
      options_.job.comm.init_timeout_seconds + options_.job.comm.train_timeout_seconds;
  if (!failing_since_us_) failing_since_us_ = now_us;
  const double tried_s = static_cast<double>(now_us - *failing_since_us_) * kSecondsPerMicrosecond;
  const bool has_another_way =
      !unreachable_.at(now_us).empty() && !unreachable_.were_tried_again(now_us);
  if (tried_s <= longest_s || has_another_way || log_.is_journaling()) {
    return begin_change(reason, now_us);
  }
  return end(absl::DeadlineExceededError(
                 absl::StrCat(reason, "; one plan after the other has failed for ", tried_s,
                              " s (comm.init_timeout_seconds and comm.train_timeout_seconds)")),
             false);
}

CoordinatorDecisions Coordination::on_own_pause(uint64_t paused_us, uint64_t now_us) {
  progress_.on_own_pause(paused_us, now_us);
  goodput_.on_own_pause(paused_us);
  if (paused_us < kTellPauseUs || phase_ == Phase::kEnded) return {};
  const std::string seconds = absl::StrCat(static_cast<double>(paused_us) * kSecondsPerMicrosecond);
  return {RunEvent{"coordinator.paused",
                   absl::StrCat("the coordinator itself did nothing for ", seconds,
                                " s; nobody is lost for being silent meanwhile"),
                   {{"seconds", seconds}}}};
}

CoordinatorDecisions Coordination::lose_silent(uint64_t judged_us, uint64_t now_us) {
  CoordinatorDecisions decisions;
  for (const Membership::Silent& each : members_.silent(judged_us)) {
    append(decisions, lose(each.worker,
                           absl::UnavailableError(absl::StrCat(
                               "no heartbeat for ", each.silent_us * kSecondsPerMicrosecond,
                               " s (elastic.heartbeat_timeout_seconds)")),
                           now_us));
  }
  return decisions;
}

/// What a worker that lives is waited for, and for how long; none: for nothing.
std::optional<Coordination::Awaited> Coordination::awaited() const {
  const double init_s = options_.job.comm.init_timeout_seconds;
  switch (phase_) {
    case Phase::kProfiling:
      // The others need time as well, to be measured without it.
      return Awaited{"measured its device", init_s / 2,
                     [this](WorkerId id) { return measurements_.is_asked(id); }};
    case Phase::kQuiescing: {
      // One whose link has swallowed the order is told it again when it is back on another one.
      // What its device is at may take as long as a step, but not as a round of several; how long
      // steps took in an earlier life nobody knows.
      const bool is_unknown = log_.last_pass_us() == 0 && log_.steps_done() > 0;
      const double pass_s = log_.last_pass_us() * kSecondsPerMicrosecond;
      const double step_s = is_unknown ? init_s / 2 : std::min(init_s / 2, pass_s);
      return Awaited{"quiesced", std::max(return_seconds(options_.job), step_s),
                     [this](WorkerId id) { return !change_.has_quiesced(id); }};
    }
    case Phase::kPreparing:
      // The run has as much time for its first step; one that is to stop has not.
      if (!has_trained_ && !stop_.is_made()) return std::nullopt;
      return Awaited{"prepared its replicas", init_s,
                     [this](WorkerId id) { return change_.hosts(id) && !change_.is_prepared(id); }};
    default:
      return std::nullopt;
  }
}

CoordinatorDecisions Coordination::lose_slow_to_answer(uint64_t judged_us, uint64_t now_us) {
  const std::optional<Awaited> what = awaited();
  if (!what) return {};
  std::vector<WorkerId> late;
  for (const auto& [id, member] : members()) {
    if (what->is_of(id) && progress_.is_slow_to_answer(member, what->limit_s, judged_us)) {
      late.push_back(id);
    }
  }
  // It lives, and may hold what nobody else has.
  const bool was_quiescing = phase_ == Phase::kQuiescing;
  CoordinatorDecisions decisions;
  for (WorkerId id : late) {
    append(decisions, lose(id,
                           absl::DeadlineExceededError(absl::StrCat("it has not ", what->what,
                                                                    " for ", what->limit_s, " s")),
                           now_us, /*may_return=*/was_quiescing));
  }
  return decisions;
}

/// A worker's device works, and not for long on one piece.
bool Coordination::validates(uint64_t now_us) const {
  const double lease_us = options_.job.elastic.heartbeat_timeout_seconds * kMicrosecondsPerSecond;
  return std::any_of(members().begin(), members().end(), [&](const auto& each) {
    const WorkerActivity& activity = each.second.activity;
    return change_.hosts(each.first) && !members_.is_silent(each.first, now_us) && activity.works &&
           activity.action_us * 2 < lease_us;
  });
}

/// A step that takes far longer than the one before has a culprit, or is tried again; a run that
/// gets no further ends.
CoordinatorDecisions Coordination::check_progress(uint64_t now_us) {
  if (phase_ == Phase::kEnded) return {};
  if (log_.is_validating() && validates(now_us)) progress_.on_progress(now_us);
  ProgressWatch::Situation situation;
  situation.is_training = phase_ == Phase::kTraining;
  situation.is_finishing = phase_ == Phase::kFinishing;
  situation.is_journaling = log_.is_journaling();
  situation.last_step_us = log_.last_step_us();
  for (const auto& [id, member] : members()) {
    if (change_.hosts(id)) situation.workers.push_back(&member);
  }
  const ProgressWatch::Verdict verdict = progress_.check(situation, now_us);
  switch (verdict.kind) {
    case ProgressWatch::Verdict::Kind::kGoesOn:
      return {};
    case ProgressWatch::Verdict::Kind::kCulprit:
      // It lives, and may hold what nobody else has.
      return lose(verdict.culprit, absl::DeadlineExceededError(verdict.reason), now_us,
                  /*may_return=*/true);
    case ProgressWatch::Verdict::Kind::kStuck:
      return try_step_again(verdict.waited_s, now_us);
    case ProgressWatch::Verdict::Kind::kTimedOut:
      return give_up(verdict, now_us);
  }
  return {};
}

/// Something that somebody waits for was lost.
CoordinatorDecisions Coordination::try_step_again(double waited_s, uint64_t now_us) {
  const std::string missing = who_is_missing();
  CoordinatorDecisions decisions = {
      RunEvent{"step.stuck",
               absl::StrCat("no progress for ", waited_s, " s at step ", steps_done() + 1,
                            ", and no worker computes; waiting for ", missing),
               {{"missing", missing}}}};
  append(decisions, begin_change("the step is tried again", now_us));
  return decisions;
}

CoordinatorDecisions Coordination::give_up(const ProgressWatch::Verdict& verdict, uint64_t now_us) {
  if (phase_ == Phase::kGathering) {
    if (log_.is_complete() && !has_unsaved()) return end(absl::OkStatus(), false);
    // Who was only to measure has read nothing that those who have trained could not.
    const bool blames_input = input_.is_of_participant() || !has_past();
    if (!input_.why().ok() && blames_input) return end(input_.why(), false);
    const bool have_all_failed = members_.count() > 0 && members_.all_have_failed();
    if (have_all_failed) return end(last_failure_, false);
    const int64_t wanted = has_past() ? options_.job.elastic.min_workers : options_.worker_count;
    const auto here = static_cast<int64_t>(members_.count());
    const std::string limit = absl::StrCat(verdict.limit_s, " s (", verdict.limit, ")");
    // More workers would be lost as the last one was.
    const std::string few = lost_why_.empty()
                                ? absl::StrCat(here, " of ", wanted, " workers joined within ",
                                               limit, "; start more workers or ask for fewer")
                                : absl::StrCat(here, " of ", wanted, " workers are here after ",
                                               limit, "; the last one that was lost: ", lost_why_,
                                               "; put that right, or ask for fewer workers");
    const std::string why =
        here < wanted || paused_why_.empty()
            ? few
            : absl::StrCat("no plan could be made within ", limit, ": ", paused_why_);
    // What those who are here hold is saved before: the run can be resumed from there.
    if (!stop_.is_made() && waits_with_unsaved()) return on_stop_request(why, now_us).decisions();
    return end(absl::DeadlineExceededError(why), false);
  }
  return end(absl::DeadlineExceededError(
                 absl::StrCat("no progress for ", verdict.waited_s, " s at step ", steps_done() + 1,
                              " (", verdict.limit, "); waiting for ", who_is_missing())),
             false);
}

absl::Status Coordination::failed_start(uint64_t now_us) const {
  const bool waits = phase_ == Phase::kGathering && has_trained_ && !has_committed();
  const auto fewest = static_cast<size_t>(options_.job.elastic.min_workers);
  const bool is_to_change = change_at_us_ && members_.count_able(now_us) >= fewest;
  return waits && !is_to_change && members_.some_have_failed() ? last_failure_ : absl::OkStatus();
}

std::string Coordination::who_is_missing() const {
  std::vector<std::string> missing;
  if (phase_ == Phase::kFinishing) missing = log_.unfinished();
  for (WorkerId each : measurements_.asked()) {
    missing.push_back(absl::StrCat("the measurements of w", each.value));
  }
  if (requests_.is_asked<RoundQuestion>()) missing.push_back("the planner");
  if (log_.is_journaling() && !journal_fault_.empty()) {
    missing.push_back(absl::StrCat("the journal (", journal_fault_, ")"));
  }
  if (phase_ == Phase::kFinishing) return absl::StrJoin(missing, ", ");
  for (const auto& [worker, replicas] : change_.hosted()) {
    if (!members_.has(worker)) continue;
    for (ReplicaId replica : replicas) {
      const bool waits = mode_ ? mode_->awaits(replica) : !change_.is_prepared(worker);
      if (waits) {
        missing.push_back(
            absl::StrCat("stage ", stage_of(*plan(), replica), " on w", worker.value));
      }
    }
  }
  return absl::StrJoin(missing, ", ");
}

// The run -----------------------------------------------------------------------------------------

/// True from preparing through finishing.
bool Coordination::runs_plan() const {
  return phase_ == Phase::kTraining || phase_ == Phase::kFinishing || phase_ == Phase::kPreparing;
}

int32_t Coordination::pipeline_replica_of(ReplicaId replica) const {
  return mode_ ? mode_->pipeline_replica_of(replica) : -1;
}

CoordinatorDecisions Coordination::try_finish() {
  if (phase_ != Phase::kFinishing || !log_.is_idle()) return {};
  return end(absl::OkStatus(), !log_.is_complete());
}

CoordinatorOutcome Coordination::on_fault(const absl::Status& why) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  return end(why, false);
}

CoordinatorOutcome Coordination::on_superseded(const absl::Status& why) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  CoordinatorDecisions decisions = end(why, false);
  if (!options_.awaits_last_workers) return decisions;  // They are ours, and die with us.
  std::erase_if(decisions,
                [](const auto& each) { return std::holds_alternative<StopWorkers>(each); });
  return decisions;
}

CoordinatorOutcome Coordination::on_stop_request(const std::string& reason, uint64_t now_us) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  if (stop_.is_made()) return Dropped{DropReason::kRepeated};
  log_.stop();
  if (mode_) mode_->cut_short();
  const StopMeasures measures = stop_measures(now_us);
  const StopBudget budget = stop_.make(reason, measures, now_us);
  CoordinatorDecisions decisions = {RunEvent{
      "run.stopping",
      absl::StrCat("stopping (", reason, "): ", to_text(measures, budget)),
      {{"reason", reason}, {"seconds", absl::StrCat(budget.total_us * kSecondsPerMicrosecond)}}}};
  // A change of plan on its way is waited for: its workers hold what is to be saved, or, after a
  // restart, so may some who are waited for.
  const bool is_changing = phase_ == Phase::kQuiescing || phase_ == Phase::kPreparing;
  const bool goes_back = phase_ == Phase::kPreparing && change_.restore().from_checkpoint;
  const bool changes = is_changing && !goes_back && has_unsaved() && (has_trained_ || has_past());
  const bool runs = phase_ == Phase::kTraining || phase_ == Phase::kFinishing;
  candidates_.take_unmeasured();
  stop_waits_until_us_ = now_us + return_us(options_.job);
  if (phase_ == Phase::kGathering || waits_with_unsaved()) {
    append(decisions, save_or_end(now_us));
  } else if (!runs && !changes) {
    append(decisions, end(absl::OkStatus(), true));
  } else if (phase_ == Phase::kQuiescing) {
    requests_.forget_all();
    append(decisions, try_choose(now_us));
  }
  if (runs && budget.abandons) append(decisions, abandon_step(now_us));
  return decisions;
}

/// The run is to stop, and no plan is in force. After a restart the workers of the life before are
/// waited for as if it went on: if that ended without a word, they notice by their lease. Those who
/// are here have as long as the checkpoint is read.
CoordinatorDecisions Coordination::save_or_end(uint64_t now_us) {
  if (waits_with_unsaved()) {
    return begin_change("what is here is saved, as the run is to stop", now_us);
  }
  const bool is_read_first = reads_.is_verifying() && members_.count() > 0;
  const bool may_come = !absent_.awaited(now_us).empty() && now_us < stop_waits_until_us_;
  if ((is_read_first || may_come) && has_past() && has_unsaved()) return {};
  return end(absl::OkStatus(), true);
}

/// While workers are waited for, or measure, those who are here may hold what is not on disk.
bool Coordination::waits_with_unsaved() const {
  const bool waits = phase_ == Phase::kGathering || phase_ == Phase::kProfiling;
  return waits && !reads_.is_verifying() && !members_.all_have_failed() && has_past() &&
         has_unsaved();
}

StopMeasures Coordination::stop_measures(uint64_t now_us) const {
  StopMeasures measures;
  const auto left = mode_ ? mode_->time_when_cut_short(now_us) : std::nullopt;
  if (left) {
    measures.step_us = *left;
  } else {
    measures.step_us = log_.last_commit_us();
    measures.elapsed_us = static_cast<double>(now_us - std::min(now_us, log_.last_step_end_us()));
  }
  measures.checkpoint_us = log_.checkpoint_us();
  measures.lease_us = options_.job.elastic.heartbeat_timeout_seconds / kSecondsPerMicrosecond;
  return measures;
}

/// What is committed is saved without the step in progress, if it is not on disk.
CoordinatorDecisions Coordination::abandon_step(uint64_t now_us) {
  if (phase_ != Phase::kTraining || log_.is_journaling() || log_.is_held()) return {};
  if (!has_unsaved()) return end(absl::OkStatus(), true);
  return begin_change("the step in progress is abandoned, as the run is to stop", now_us);
}

CoordinatorDecisions Coordination::check_stop(uint64_t now_us) {
  if (phase_ == Phase::kEnded) return {};
  if (stop_.is_over(now_us)) {
    const std::string missing = who_is_missing();
    return end(
        absl::DeadlineExceededError(absl::StrCat(
            "the run could not be stopped in order within its time",
            missing.empty() ? "" : "; waiting for ", missing, "; what was saved before stays")),
        false);
  }
  return stop_.abandons_step(now_us) ? abandon_step(now_us) : CoordinatorDecisions{};
}

CoordinatorOutcome Coordination::on_journal_delayed(const absl::Status& why, uint64_t now_us) {
  if (phase_ == Phase::kEnded) return Dropped{DropReason::kUnexpected};
  progress_.on_progress(now_us);  // It is the disk that is waited for, and no worker.
  const bool was_told = !journal_fault_.empty() && now_us < journal_told_us_ + kTellJournalUs;
  const std::string reason = journal_fault_ = std::string(why.message());
  if (was_told) return CoordinatorDecisions{};
  journal_told_us_ = now_us;
  return CoordinatorDecisions{
      RunEvent{"journal.waiting",
               absl::StrCat(reason, "; training waits until it can be written, and loses nothing"),
               {{"reason", reason}}}};
}

CoordinatorDecisions Coordination::end(absl::Status status, bool stopped_early) {
  if (phase_ == Phase::kEnded) return {};
  // While a plan is in force, all that have a part in it are there; else they have said what they
  // hold.
  const bool is_whole =
      mode_ ? mode_->is_whole() : change_.newest_step(durable()) >= log_.steps_done();
  phase_ = Phase::kEnded;
  mode_.reset();
  change_after_journal_.reset();
  const std::string reason = !status.ok()    ? std::string(status.message())
                             : stopped_early ? stop_.reason()
                                             : "done";
  const bool keeps_state = (!status.ok() || stopped_early) && has_unsaved();
  return {StopWorkers{reason, keeps_state, keeps_state && is_whole},
          EndRun{std::move(status), stopped_early}};
}

void Coordination::check_invariants() const {
  const bool has_plan_in_force = phase_ == Phase::kTraining || phase_ == Phase::kFinishing;
  SKEIN_CHECK((mode_ != nullptr) == has_plan_in_force) << static_cast<int>(phase_);
  SKEIN_CHECK(!change_after_journal_ || log_.is_journaling()) << *change_after_journal_;
  SKEIN_CHECK(generation_ >= options_.generation) << generation_;
  SKEIN_CHECK(phase_ != Phase::kTraining || log_.is_journaling() || !log_.is_held());
  members_.check_invariants();
  unreachable_.check_invariants();
  measurements_.check_invariants(members());
  if (phase_ == Phase::kEnded) return;
  change_.check_invariants(members());
  requests_.check_invariants();
  log_.check_invariants();
  shards_.check_invariants();
  if (mode_) mode_->check_invariants();
}

}  // namespace skein::plans
