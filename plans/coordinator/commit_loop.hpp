#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/elastic/snapshot_schedule.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/column_loop.hpp"

namespace skein::plans {

/// Step after step: ready -> journal -> commit, with the validations, checkpoints and snapshots
/// that commits order, through one plan after the other. A state machine without clock or I/O.
///
/// Events of a step that is not in progress change nothing and are counted in `dropped`.
class CommitLoop {
 public:
  /// What an earlier life of the coordinator has left.
  struct Past {
    uint64_t committed = 0;  // Steps in the journal.
    double last_norm = 0;    // Gradient norm of the last of them: workers may still wait for it.
    uint64_t durable = 0;    // Steps of the newest checkpoint.
    /// By the journal: generation of the steps from each of these on.
    std::map<uint64_t, uint64_t> generations;
  };
  CommitLoop(JobSpec job, uint64_t term, const Past& past);

  /// A plan is in force from step `first_step` on. What is left to do of the step before it goes
  /// into the order, if that step's state is what the plan starts with.
  CommitOrder begin_generation(const Plan& plan, std::vector<WorkerId> keepers, uint64_t first_step,
                               uint64_t now_us);
  /// The plan is not in force any more; nothing is being journaled. What was reported of the step
  /// in progress is void; what the last commit ordered and nobody has finished is kept for the next
  /// plan. Returns a line for each thing that is given up.
  CoordinatorDecisions end_generation();
  /// The next commit is the last one of this plan.
  void hold() { holds_ = true; }
  /// The next commit is the last one of the run.
  void stop() { stops_ = true; }

  CoordinatorDecisions on_ready(const ReadyReport& report, uint64_t now_us);
  CoordinatorDecisions on_reduced(ReplicaId replica, uint64_t step, double norm_squared);
  /// Columns of their own pace have done all steps before `end_step`, and are alike again: one
  /// commit for all of these steps, numbered as the last of them.
  CoordinatorDecisions on_segment(uint64_t end_step, const SegmentTotals& totals, uint64_t now_us);
  /// Where a segment that begins now should end: at `steps` steps, or before that where something
  /// else is due.
  uint64_t segment_end(int64_t steps) const;
  CoordinatorDecisions on_journaled(uint64_t step, uint64_t now_us);
  CoordinatorDecisions on_validated(ReplicaId replica, uint64_t step, double loss_sum,
                                    uint64_t loss_tokens, uint64_t now_us);
  CoordinatorDecisions on_shard_saved(int32_t stage, uint64_t steps_done);
  /// False if nobody waits for it.
  bool on_checkpoint_completed(uint64_t steps_done, bool ok);
  void on_snapshot_kept(WorkerId worker, int32_t stage, uint64_t steps_done) {
    snapshots_.on_kept(worker, stage, steps_done);
  }

  uint64_t steps_done() const { return step_; }
  double last_loss() const { return last_loss_; }
  /// In which the last of the first `steps` steps was committed, which tells the state after it
  /// from one of a past that was rolled back; 0: unknown, or there is none.
  uint64_t generation_of(uint64_t steps) const;
  double last_norm() const { return last_norm_; }
  double last_step_us() const { return last_step_us_; }  // 0: no step of this plan is committed.
  uint64_t durable_step() const { return durable_step_; }
  uint64_t snapshot_floor() const { return snapshots_.floor(); }
  bool is_journaling() const { return journaling_.has_value(); }
  /// The last commit of this plan is out.
  bool is_held() const { return is_held_; }
  /// The run has its last step.
  bool is_complete() const;
  /// Nothing that a commit ordered is left to do.
  bool is_idle() const { return validations_.empty() && checkpoints_.empty() && !owes(); }
  bool is_reduced(ReplicaId replica) const { return reduced_.contains(replica); }
  const std::map<ReplicaId, ReadyReport>& last_reports() const { return last_reports_; }
  uint64_t dropped() const { return dropped_; }

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
    double loss = 0;
  };

  CoordinatorDecisions try_commit();
  CoordinatorDecisions journal(CommitRecord record);
  CommitOrder make_order() const;
  BroadcastCommit make_broadcast(const CommitOrder& order, uint64_t now_us) const;
  bool owes() const { return owed_validation_ || owed_checkpoint_; }
  uint64_t total_steps() const { return static_cast<uint64_t>(job_.training.steps); }
  CoordinatorDecisions drop();

  JobSpec job_;
  uint64_t term_ = 0;
  Plan plan_;
  uint64_t step_ = 0;  // The step that is being computed; equals the number of committed steps.
  std::map<ReplicaId, ReadyReport> ready_;
  std::map<ReplicaId, double> reduced_;            // Squared norms.
  std::map<ReplicaId, ReadyReport> last_reports_;  // Of the last committed step.
  std::optional<CommitRecord> journaling_;
  std::optional<SegmentTotals> segment_;  // That is being journaled, if columns have done it.
  uint64_t last_ready_us_ = 0;
  uint64_t last_step_end_us_ = 0;  // For the reported step time.
  double last_loss_ = 0;
  double last_norm_ = 0;
  std::map<uint64_t, uint64_t> generations_;  // Of the committed steps from each of these on.
  double last_step_us_ = 0;
  uint64_t durable_step_ = 0;
  std::map<uint64_t, Validation> validations_;  // By step.
  std::map<uint64_t, Checkpoint> checkpoints_;  // By steps done.
  SnapshotSchedule snapshots_;
  bool holds_ = false;
  bool is_held_ = false;
  bool stops_ = false;
  bool owed_validation_ = false;  // Of the last committed step.
  bool owed_checkpoint_ = false;
  uint64_t dropped_ = 0;
};

}  // namespace skein::plans
