#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plans/base/outcome.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/elastic/snapshot_schedule.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/training_mode.hpp"

namespace skein::plans {

/// In which the last of the first `steps` steps was committed, by the generation of the steps from
/// each of these on; 0: unknown, or there is none.
uint64_t generation_of(const std::map<uint64_t, uint64_t>& generations, uint64_t steps);

/// What is committed: journaling, what each commit orders (validations, checkpoints, snapshots),
/// and what has become of those orders, through one plan after the other. The same for all training
/// modes: what is committed comes as `CommitTotals`. A state machine without clock or I/O.
class CommitLog {
 public:
  /// What an earlier life of the coordinator has left.
  struct Past {
    uint64_t committed = 0;  // Steps in the journal.
    /// Gradient norm of the last of them: workers may still wait for it. None: not known.
    std::optional<double> last_norm;
    double last_loss = 0;  // Also of that step; 0: not known.
    uint64_t durable = 0;  // Steps of the newest checkpoint.
    /// By the journal: generation of the steps from each of these on.
    std::map<uint64_t, uint64_t> generations;
  };
  CommitLog(JobSpec job, uint64_t term, const Past& past);

  /// A plan is in force from step `first_step` on. What is left to do of the step before it goes
  /// into the order, if that step's state is what the plan starts with. `leaves_commits_behind`: as
  /// the plan's training mode says.
  CommitOrder begin_generation(const Plan& plan, std::vector<WorkerId> snapshot_peers,
                               uint64_t first_step, bool leaves_commits_behind, uint64_t now_us);
  /// The plan is not in force any more; nothing is being journaled. What the last commit
  /// ordered and nobody has finished is kept for the next plan. Returns a line for each thing that
  /// is given up.
  CoordinatorDecisions end_generation();
  /// The next commit is the last one of this plan.
  void hold() { holds_ = true; }
  bool holds() const { return holds_; }
  /// The next commit is the last one of the run.
  void stop() { stops_ = true; }

  /// The work up to a step is done: its record goes to the journal. Ends the run if it diverged.
  CoordinatorDecisions on_completed(const CommitTotals& totals, uint64_t now_us);
  /// Where a commit that covers up to `steps` steps should end: there, or before that where
  /// something else is due.
  uint64_t next_boundary(uint64_t steps) const;
  Outcome<CoordinatorDecisions> on_journaled(uint64_t step, uint64_t now_us);
  /// By the worker that holds the replica, which is one of the last stage.
  Outcome<CoordinatorDecisions> on_validated(WorkerId sender, ReplicaId replica, uint64_t step,
                                             double loss_sum, uint64_t loss_tokens,
                                             uint64_t now_us);
  /// Why no news of a stage's shard is taken from this worker; none: it is awaited from it.
  std::optional<DropReason> check_shard(WorkerId sender, int32_t stage, uint64_t steps_done) const;
  /// The shard belongs to a checkpoint that has failed without it: it may be on its way. True once.
  bool takes_late_shard(WorkerId sender, int32_t stage, uint64_t steps_done);
  /// The checkpoint has failed in this plan, lately.
  bool has_failed(uint64_t steps_done) const { return late_shards_.contains(steps_done); }
  /// The shard is known to be on its way: no news of it is awaited.
  void on_shard_announced(int32_t stage, uint64_t steps_done);
  /// By the worker that leads the stage. Not `ok`: the caller gives the checkpoint up.
  Outcome<CoordinatorDecisions> on_shard_saved(WorkerId sender, int32_t stage, uint64_t steps_done,
                                               bool ok);
  /// None: somebody waited for it.
  std::optional<DropReason> on_checkpoint_completed(uint64_t steps_done, bool ok, uint64_t now_us);
  std::optional<DropReason> on_snapshot_kept(WorkerId worker, int32_t stage, uint64_t steps_done) {
    return snapshots_.on_kept(worker, stage, steps_done);
  }

  uint64_t steps_done() const { return step_; }
  double last_loss() const { return last_loss_; }
  /// In which the last of the first `steps` steps was committed, which tells the state after it
  /// from one of a past that was rolled back; 0: unknown, or there is none.
  uint64_t generation_of(uint64_t steps) const { return plans::generation_of(generations_, steps); }
  const std::map<uint64_t, uint64_t>& generations() const { return generations_; }
  std::optional<double> last_norm() const { return last_norm_; }
  /// What the last commit took since the one before; 0: there was none in this life.
  double last_commit_us() const { return last_commit_us_; }
  /// The longest that a worker was at one thing for it: a step, an iteration of its own, or the end
  /// of a round; 0: there was none in this life.
  double last_pass_us() const { return last_pass_us_; }
  /// When the work on the next commit began.
  uint64_t last_step_end_us() const { return last_step_end_us_; }
  double last_step_us() const { return last_step_us_; }  // 0: no step of this plan is committed.
  uint64_t durable_step() const { return durable_step_; }
  /// The newest checkpoint that is whole is another one than was thought.
  void set_durable_step(uint64_t steps_done) { durable_step_ = steps_done; }
  /// A checkpoint of more steps is about to be complete.
  bool completes_beyond(uint64_t steps) const;
  /// What the newest checkpoint took from its order on; 0: none was completed in this life.
  double checkpoint_us() const { return checkpoint_us_; }
  uint64_t snapshot_waits() const { return snapshots_.waits(); }
  bool is_journaling() const { return journaling_.has_value(); }
  /// The last commit of this plan is out.
  bool is_held() const { return is_held_; }
  /// The run has its last step.
  bool is_complete() const;
  /// Workers have been told to validate, and have not all said what they found.
  bool is_validating() const { return !validations_.empty(); }
  /// Nothing that a commit ordered is left to do.
  bool is_idle() const { return validations_.empty() && checkpoints_.empty() && !owes(); }
  /// Steps done of checkpoints that have been ordered and are neither complete nor given up.
  std::set<uint64_t> checkpoints_under_way() const;
  /// What is left to do, and whose turn it is, for people.
  std::vector<std::string> unfinished() const;

  void check_invariants() const;

 private:
  struct Validation {
    uint64_t started_us = 0;
    std::set<ReplicaId> reported;
    double loss_sum = 0;
    uint64_t loss_tokens = 0;
  };
  struct Checkpoint {
    std::set<int32_t> stages;  // Saved so far.
    bool is_completing = false;
    std::set<int32_t> announced;  // Stages whose shards are on their way.
    double loss = 0;
    uint64_t ordered_us = 0;
  };

  CommitOrder make_order(uint64_t now_us);
  void begin_checkpoint(uint64_t steps_done, double loss, uint64_t now_us);
  bool may_save_another() const;
  std::optional<RunEvent> save_late(bool is_ordered);
  BroadcastCommit make_broadcast(const CommitOrder& order, uint64_t now_us) const;
  bool owes() const { return owed_validation_ || owed_checkpoint_; }
  uint64_t total_steps() const { return static_cast<uint64_t>(job_.training.steps); }

  // Invariants: a checkpoint is of steps that are committed; committed steps are at most those of
  // the job; nothing is journaled after the last commit of a plan; what is journaled covers steps
  // that are not committed; what is awaited is of committed steps.
  JobSpec job_;
  uint64_t term_ = 0;
  Plan plan_;
  bool leaves_commits_behind_ = false;
  uint64_t step_ = 0;  // The step that is being computed; equals the number of committed steps.
  std::optional<CommitRecord> journaling_;
  CommitTotals totals_;  // The totals of what is being journaled.
  uint64_t last_ready_us_ = 0;
  uint64_t last_step_end_us_ = 0;  // Begins the reported step time.
  double last_loss_ = 0;
  std::optional<double> last_norm_;
  std::map<uint64_t, uint64_t> generations_;  // By the first committed step that each covers.
  double last_step_us_ = 0;
  double last_commit_us_ = 0;
  double last_pass_us_ = 0;
  uint64_t durable_step_ = 0;
  std::map<uint64_t, Validation> validations_;  // By step.
  std::map<uint64_t, Checkpoint> checkpoints_;  // By steps done.
  /// By steps done of checkpoints that have failed in this plan: stages whose shards may come; a
  /// few of the newest.
  std::map<uint64_t, std::set<int32_t>> late_shards_;
  double checkpoint_us_ = 0;
  SnapshotSchedule snapshots_;
  bool holds_ = false;
  bool is_held_ = false;
  bool stops_ = false;
  bool owed_validation_ = false;  // The last committed step has ordered it.
  bool owed_checkpoint_ = false;
  bool late_checkpoint_ = false;  // One is due, and waits until fewer are being written.
};

}  // namespace skein::plans
