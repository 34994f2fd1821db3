#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "plans/base/outcome.hpp"
#include "plans/coordinator/absent_holders.hpp"
#include "plans/coordinator/checkpoint_reads.hpp"
#include "plans/coordinator/commit_log.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/input_blame.hpp"
#include "plans/coordinator/like_devices.hpp"
#include "plans/coordinator/measurements.hpp"
#include "plans/coordinator/membership.hpp"
#include "plans/coordinator/peer_failures.hpp"
#include "plans/coordinator/plan_candidates.hpp"
#include "plans/coordinator/plan_change.hpp"
#include "plans/coordinator/plan_review.hpp"
#include "plans/coordinator/planner_questions.hpp"
#include "plans/coordinator/planner_requests.hpp"
#include "plans/coordinator/progress_watch.hpp"
#include "plans/coordinator/shard_transfers.hpp"
#include "plans/coordinator/stop_budget.hpp"
#include "plans/coordinator/stop_request.hpp"
#include "plans/coordinator/unreachable_pairs.hpp"
#include "plans/elastic/goodput.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/mode_list.hpp"
#include "plans/modes/training_mode.hpp"
#include "plans/plan/plan.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::plans {

using CoordinatorOutcome = Outcome<CoordinatorDecisions>;

/// The coordinator of a run as a state machine without clock or I/O: the phase, the generation, and
/// the wiring of what does the work (members, measurements, changes of plan, the training mode, the
/// commit log, the watchers of timings). Times are microseconds of one clock, which stands still in
/// pauses (`AwakeClock`).
///
///   1 gathering:  workers join until there are enough; also when too few are left
///   2 profiling:  workers measure devices and links, one after the other on each host (only when
///                 the planner is to choose, or nothing but measuring is asked for)
///   3 quiescing:    a new generation: every member quiesces, and says what state it holds; then a
///                 plan is chosen, which may take the planner a while
///   4 preparing:  the plan is assigned; workers move state, allocate, load and form groups
///   5 training:   the mode and the commit log; a lost member or a change that waits for a commit
///                 leads to 3
///   6 finishing:  the last step is committed; validation and checkpoints are awaited
///   7 ended
///
/// Changes that come while 3 and 4 last are handled by the next round. Repeated, late and stale
/// events change nothing, and the outcome says why. What takes long is asked of the planner and
/// applied when it answers; meanwhile everything else goes on.
class Coordination {
 public:
  struct Options {
    JobSpec job;
    int64_t worker_count = 0;  // To wait for.
    uint64_t term = 1;
    uint64_t committed_steps = 0;  // By the journal.
    /// Gradient norm of the last of them; none: not known.
    std::optional<double> committed_norm;
    double committed_loss = 0;                 // Also of that step; 0: not known.
    std::map<uint64_t, uint64_t> generations;  // As `CommitLog::Past`.
    uint64_t durable_step = 0;                 // By the newest checkpoint; 0: the initial weights.
    uint64_t generation = 0;                   // Largest one of the journal.
    std::optional<Plan> last_plan;  // The journal's newest: what the workers may still hold.
    /// The workers of the journal's last plans, who may hold older state, each with the generation
    /// of the oldest of these that it is in.
    std::map<WorkerId, uint64_t> earlier_workers;
    /// Whether its workers may be alive, and find this coordinator.
    bool awaits_last_workers = true;
    std::optional<Plan> plan;    // To use as it is, for workers 1, 2, ...; none: the job's layout.
    bool only_profiles = false;  // Ends when devices and links are measured.
    /// Data and checkpoint have been read. False: workers join, and wait for
    /// `on_checkpoint_verified`.
    bool is_verified = true;
    const ModeList* modes = nullptr;  // Outlives this; null: those of the product.
    std::string run;                  // Its id.
    uint64_t config_digest = 0;       // The job's, of its configuration; 0: not known.
  };
  enum class Phase {
    kGathering,
    kProfiling,
    kQuiescing,
    kPreparing,
    kTraining,
    kFinishing,
    kEnded
  };

  Coordination(Options options, uint64_t now_us);
  Coordination(const Coordination&) = delete;  // Its components know one another.
  Coordination& operator=(const Coordination&) = delete;

  CoordinatorOutcome on_join(PeerNumber peer, JoinRequest request, uint64_t now_us);
  CoordinatorOutcome on_profiled(WorkerId worker, MeasuredWorker measured, uint64_t now_us);
  CoordinatorOutcome on_quiesced(WorkerId worker, uint64_t generation,
                                 std::vector<InventoryItem> inventory, uint64_t now_us);
  CoordinatorOutcome on_prepared(WorkerId worker, uint64_t generation, uint64_t now_us,
                                 const TurnReport& turns = {});
  CoordinatorOutcome on_plan_ready(const PlanReady& ready, uint64_t now_us);
  CoordinatorOutcome on_ready(WorkerId sender, const ReadyReport& report, uint64_t now_us);
  /// What has become of a token of the replica.
  CoordinatorOutcome on_token(WorkerId sender, ReplicaId replica, uint64_t step, int32_t token,
                              TokenEvent event, uint64_t now_us);
  /// The first gradients of its step are final.
  CoordinatorOutcome on_early_signal(WorkerId sender, ReplicaId replica, uint64_t step,
                                     uint64_t now_us);
  CoordinatorOutcome on_reduced(WorkerId sender, ReplicaId replica, uint64_t step,
                                double norm_squared, uint64_t now_us);
  /// The replica is through with a group; not `ok`: it goes on with what it had.
  CoordinatorOutcome on_averaged(WorkerId sender, ReplicaId replica, uint64_t number, bool ok,
                                 uint64_t now_us);
  CoordinatorOutcome on_journaled(uint64_t step, uint64_t now_us);
  /// What the newest commit gives to think about: slow workers, a better mode. For when what
  /// `on_journaled` has decided was carried out, so that no commit waits for it; nothing the second
  /// time.
  CoordinatorDecisions after_commit(uint64_t now_us);
  CoordinatorOutcome on_validated(WorkerId sender, ReplicaId replica, uint64_t step,
                                  double loss_sum, uint64_t loss_tokens, uint64_t now_us);
  /// `status`: whether the stage's files are on disk.
  CoordinatorOutcome on_shard_saved(WorkerId sender, int32_t stage, uint64_t steps_done,
                                    const absl::Status& status, uint64_t now_us);
  /// The worker that leads the stage sends its state, to be saved here.
  CoordinatorOutcome on_shard_sent(WorkerId sender, int32_t stage, uint64_t steps_done,
                                   uint64_t now_us);
  /// A layer of the shard that is received has come.
  CoordinatorOutcome on_shard_layer(int32_t stage, uint64_t steps_done, uint64_t now_us);
  /// The shard that is received is saved here as its worker would have, or could not be.
  CoordinatorOutcome on_shard_received(const ReceiveShard& shard, const absl::Status& status,
                                       uint64_t now_us);
  /// A checkpoint that cannot be written stops nothing, unless it is the run's last one.
  CoordinatorOutcome on_checkpoint_completed(uint64_t steps_done, const absl::Status& status,
                                             uint64_t now_us);
  /// The worker cannot read the checkpoint that its plan starts with: either that is damaged, and
  /// an older one is taken, or the worker is.
  CoordinatorOutcome on_checkpoint_unreadable(WorkerId worker, const std::string& reason,
                                              uint64_t now_us);
  /// The worker does not see the checkpoint that its plan starts with: it is sent its layers.
  CoordinatorOutcome on_layers_wanted(WorkerId worker, uint64_t now_us);
  /// The answer to `VerifyCheckpoint`, or to the question that was asked at the start.
  CoordinatorOutcome on_checkpoint_verified(const CheckpointVerdict& verdict, uint64_t now_us);
  /// The answer to `SeekLeftState`: the steps of the checkpoint that was made; 0: of none.
  CoordinatorOutcome on_left_state(uint64_t steps_done, uint64_t now_us);
  /// There is newer state than the run has, and no checkpoint can be made of it for now, which is
  /// tried again: no plan is made until `on_left_state`.
  CoordinatorOutcome on_left_state_delayed(const absl::Status& why, uint64_t now_us);
  CoordinatorOutcome on_snapshot_kept(WorkerId worker, int32_t stage, uint64_t steps_done);
  /// Slices of a step for the trace; they change nothing here.
  CoordinatorOutcome on_timings(WorkerId sender, ReplicaId replica) const;
  /// Any message of a member renews its lease.
  void on_heard(WorkerId worker, uint64_t now_us) { members_.on_heard(worker, now_us); }
  CoordinatorOutcome on_heartbeat(WorkerId worker, WorkerActivity activity, uint64_t now_us);
  /// A link closed, or the worker said that it cannot go on. Bad input (InvalidArgument, DataLoss,
  /// NotFound) ends the run when a second worker with a part in the plan says the same before
  /// anything is committed, or when the run cannot begin without the first: the others would fail
  /// alike. From one alone it is a fault of its own.
  CoordinatorOutcome on_worker_lost(WorkerId worker, const absl::Status& why, uint64_t now_us);
  /// The worker lives and gives what it holds, but computes nothing any more, so it is to leave.
  /// Bad input is judged as in `on_worker_lost`. Anything else is a lack of memory for its plan: it
  /// is counted on again when a new worker joins. A repeat is dropped.
  CoordinatorOutcome on_worker_failed(WorkerId worker, const absl::Status& why, uint64_t now_us);
  /// The answer to `CheckListener`: the process that listened there is dead.
  CoordinatorOutcome on_worker_gone(const std::string& address, uint64_t now_us);
  /// A neighbour (`peer`; 0: not known) or a group does not answer the worker.
  CoordinatorOutcome on_peer_failure(WorkerId worker, WorkerId peer, const std::string& reason,
                                     uint64_t now_us);
  /// The worker has tried for about a lease to reach `peer`, in vain: as a peer failure, and the
  /// next plans keep them apart.
  CoordinatorOutcome on_unreachable(WorkerId worker, WorkerId peer, const std::string& reason,
                                    uint64_t now_us);
  /// The worker must go: its state is moved away first.
  CoordinatorOutcome on_leave(WorkerId worker, const std::string& reason, uint64_t now_us);
  CoordinatorOutcome on_fault(const absl::Status& why);
  /// Another coordinator has the run: this one ends, and its workers, but for those that die with
  /// it, look for the other at the same address.
  CoordinatorOutcome on_superseded(const absl::Status& why);
  CoordinatorOutcome on_stop_request(const std::string& reason, uint64_t now_us);
  /// The journal cannot be written for now, and tries again: the run waits for it.
  CoordinatorOutcome on_journal_delayed(const absl::Status& why, uint64_t now_us);
  /// We have done nothing for so long, up to now; in that time our clock stood still, so it is of
  /// nobody's time. What waits to be read is read before anybody is judged. A connection that was
  /// lost meanwhile may have been given up by a worker that lives.
  CoordinatorDecisions on_own_pause(uint64_t paused_us, uint64_t now_us);
  CoordinatorDecisions on_timer(uint64_t now_us);

  Phase phase() const { return phase_; }
  bool is_training() const { return phase_ == Phase::kTraining; }
  /// Of the newest change of plan; messages of another one are stale.
  uint64_t generation() const { return generation_; }
  const std::map<WorkerId, Member>& members() const { return members_.all(); }
  /// The plan in force, or the one before while there is none.
  const std::optional<Plan>& plan() const { return change_.plan(); }
  /// In this life a plan has been in force, or the run has paused for lack of workers.
  bool has_trained() const { return has_trained_; }
  uint64_t steps_done() const { return log_.steps_done(); }
  /// As `CommitLog::generation_of`.
  uint64_t generation_of(uint64_t steps) const { return log_.generation_of(steps); }
  double last_loss() const { return log_.last_loss(); }
  /// Commits that have ordered no snapshot, as the one before was still on its way.
  uint64_t snapshot_waits() const { return log_.snapshot_waits(); }
  /// It has something to do or to hold by the plan that is prepared or in force.
  bool takes_part(WorkerId worker) const { return change_.takes_part(worker); }
  Goodput goodput(uint64_t now_us) const { return goodput_.at(now_us); }
  /// Why nothing was committed in this life and the run waits for more workers: those who are here
  /// cannot go on. OK: it is not so.
  absl::Status failed_start(uint64_t now_us) const;
  /// As `TrainingMode::pipeline_replica_of`, for reports; -1 while there is no plan in force.
  int32_t pipeline_replica_of(ReplicaId replica) const;
  /// When to call `on_timer`, beside the times at which it is called anyway; none: no wish.
  std::optional<uint64_t> wake_us() const { return mode_ ? mode_->wake_us() : std::nullopt; }
  const Options& options() const { return options_; }

  /// A full sweep over this and all its components; ends the process if something does not hold.
  void check_invariants() const;

 private:
  // Members.
  CoordinatorDecisions refuse_other_run(PeerNumber peer, const JoinRequest& request);
  CoordinatorDecisions welcome(PeerNumber peer, JoinRequest request, uint64_t now_us);
  bool has_number_of_another(const JoinRequest& request) const;
  CoordinatorDecisions lose(WorkerId worker, const absl::Status& why, uint64_t now_us,
                            bool may_return = false);
  CoordinatorDecisions await_return(const Member& member, const std::string& why, uint64_t now_us);
  CoordinatorDecisions forget(WorkerId worker);
  CoordinatorDecisions set_aside(WorkerId worker, const std::string& why, uint64_t now_us);
  /// `lacks_memory`: for its part of the plan, which the others would lack even more with its rows.
  CoordinatorDecisions go_on_without(WorkerId worker, const std::string& reason, uint64_t now_us,
                                     bool lacks_memory = false);
  CoordinatorDecisions let_leave(WorkerId worker, uint64_t now_us);
  bool accuse_input(const Member& accuser, bool takes_part, const absl::Status& blame,
                    uint64_t now_us);
  void mark_hosts(const std::function<void(WorkerId)>& mark);
  CoordinatorDecisions try_gather(uint64_t now_us);
  bool is_everybody_back(uint64_t now_us) const;
  bool needs_what_it_holds(const Member& member) const;
  CoordinatorDecisions dismiss_leavers();
  std::string describe(WorkerId worker) const;

  // Measurements.
  CoordinatorDecisions start_profiling(uint64_t now_us);
  CoordinatorDecisions try_finish_profiling(uint64_t now_us);

  // Changes of plan.
  CoordinatorDecisions begin_change(const std::string& reason, uint64_t now_us);
  QuiesceWorker quiesce(WorkerId worker) const;
  CoordinatorDecisions try_choose(uint64_t now_us);
  std::optional<CoordinatorDecisions> wait_for_holders(uint64_t now_us);
  PlanChange::Durable durable() const { return {log_.steps_done(), log_.durable_step()}; }
  CoordinatorDecisions choose(const absl::StatusOr<PlannedPipeline>& chosen, uint64_t planning_us,
                              uint64_t now_us);
  CoordinatorDecisions assign(PlannedPipeline chosen, uint64_t planning_us, uint64_t now_us);
  CoordinatorDecisions seek_left_state(PlannedPipeline chosen);
  std::optional<RunEvent> keep_apart(PlannedPipeline& chosen, uint64_t now_us);
  CoordinatorDecisions pause(const std::string& why, uint64_t now_us);
  CoordinatorDecisions try_start(uint64_t now_us);
  CoordinatorDecisions start(uint64_t now_us);
  void consider_change(uint64_t at_us);
  CoordinatorDecisions check_change(uint64_t now_us);
  CoordinatorDecisions count_on_full_again(uint64_t now_us);
  void hold_for_change(const std::string& reason);

  CoordinatorDecisions take(const RoundAnswer& answer, const PlanReady& ready, uint64_t now_us);
  CoordinatorDecisions follow(PlanReview::Advice advice);
  bool may_change_plan() const;

  // Steps.
  CoordinatorOutcome advance(ModeOutcome outcome, uint64_t now_us);
  CoordinatorDecisions advance(ModeDecisions made, uint64_t now_us);
  CoordinatorOutcome follow(CoordinatorOutcome outcome, uint64_t now_us);
  CoordinatorDecisions begin_work(uint64_t now_us);
  CoordinatorDecisions watch_timings(uint64_t now_us);

  // Time-outs.
  /// Everybody's silence until `judged_us` counts; below, the time to answer.
  CoordinatorDecisions lose_silent(uint64_t judged_us, uint64_t now_us);
  struct Awaited {
    const char* what = "";  // "quiesced"
    double limit_s = 0;
    std::function<bool(WorkerId)> is_of;
  };
  std::optional<Awaited> awaited() const;
  CoordinatorDecisions lose_slow_to_answer(uint64_t judged_us, uint64_t now_us);
  CoordinatorDecisions give_up_shard(uint64_t now_us);
  CoordinatorDecisions clear_failed(uint64_t steps_done, uint64_t now_us);
  DeletePartials delete_failed(uint64_t steps_done) const;
  CoordinatorDecisions check_progress(uint64_t now_us);
  bool validates(uint64_t now_us) const;
  CoordinatorDecisions change_for_failure(const std::string& reason, uint64_t now_us);
  CoordinatorDecisions try_step_again(double waited_s, uint64_t now_us);
  CoordinatorDecisions give_up(const ProgressWatch::Verdict& verdict, uint64_t now_us);
  std::string who_is_missing() const;

  // The end.
  StopMeasures stop_measures(uint64_t now_us) const;
  /// Workers may hold what was trained, in this life or in an earlier one.
  bool has_past() const { return has_trained_ || options_.last_plan; }
  /// In this life.
  bool has_committed() const { return log_.steps_done() > options_.committed_steps; }
  bool has_unsaved() const {
    return options_.job.checkpoint.enable && log_.steps_done() != log_.durable_step();
  }
  CoordinatorDecisions save_or_end(uint64_t now_us);
  bool waits_with_unsaved() const;
  CoordinatorDecisions abandon_step(uint64_t now_us);
  CoordinatorDecisions check_stop(uint64_t now_us);
  bool runs_plan() const;
  CoordinatorDecisions lose_complainers(uint64_t now_us);
  CoordinatorDecisions try_finish();
  CoordinatorDecisions end(absl::Status status, bool stopped_early);

  // Invariants: there is a mode exactly while a plan is in force (training, finishing); a change
  // waits for the journal only while a commit is on its way there; a generation never decreases;
  // no plan is chosen before the checkpoint of the start has been read.
  Options options_;
  Phase phase_ = Phase::kGathering;
  uint64_t generation_ = 0;
  Membership members_;
  AbsentHolders absent_;
  Measurements measurements_;
  std::set<std::string> refused_runs_;  // Runs of which a worker was refused; kRefusedRunsMax.
  PeerFailures failures_;
  UnreachablePairs unreachable_;
  LikeDevices like_devices_;
  PlanChange change_;
  PlanCandidates candidates_;
  PlannerRequests requests_;
  PlanReview review_;
  CommitLog log_;
  ShardTransfers shards_;  // Those of the plan in force.
  CheckpointReads reads_;
  std::unique_ptr<TrainingMode> mode_;  // That of the plan in force.
  ProgressWatch progress_;
  InputBlame input_;
  StopRequest stop_;
  GoodputLedger goodput_;
  bool watches_commit_ = false;  // `after_commit` has not looked at the newest one.
  double lent_share_ = 0;  // The part of the newest commit's time in which other jobs had devices.
  bool has_trained_ = false;   // As `has_trained`.
  absl::Status last_failure_;  // Why the last worker that stayed computes no more.
  std::string lost_why_;       // Who was lost last since a plan began, and why; empty: nobody was.
  bool is_urgent_ = false;     // A worker was lost since the last plan.
  bool has_marked_trained_ = false;  // Those of the plan, at its first commit.
  std::optional<std::string> change_after_journal_;
  std::optional<uint64_t> change_at_us_;  // Members have changed: look for a better plan then.
  std::string change_reason_;             // Of the change that the commit log is held for.
  bool waits_for_holders_ = false;        // Only while quiescing.
  uint64_t stop_waits_until_us_ = 0;      // A run that is to stop, for those who may come back.
  bool changes_connection_ = false;       // A worker is lost and welcomed in one event.
  size_t most_gathered_ = 0;              // Members at once, since gathering began.
  std::string paused_why_;                // As the last pause was told.
  size_t planned_for_ = 0;                // How many could work when the plan was given out.
  /// When the first of the plans failed that have failed since the last commit or join.
  std::optional<uint64_t> failing_since_us_;
  std::string journal_fault_;     // Why it cannot be written; empty: it can.
  uint64_t journal_told_us_ = 0;  // With it: when that was last said.
};

}  // namespace skein::plans
