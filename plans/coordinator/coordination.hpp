#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "plans/coordinator/commit_loop.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/elastic/goodput.hpp"
#include "plans/elastic/hold_back.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/stragglers/remedy_pace.hpp"
#include "plans/stragglers/speed_watch.hpp"
#include "plans/sync/sync_watch.hpp"

namespace skein::plans {

/// The coordinator of a run as a state machine without clock or I/O: members, plans,
/// commits and the end. Times are microseconds of one steady clock.
///
///   1 gathering:  workers join until there are enough; also when too few are left
///   2 profiling:  workers measure devices and links, one after the other on each host (only when
///                 the planner is to choose, or nothing but measuring is asked for)
///   3 halting:    a new generation: every member stops, and says what state it holds
///   4 preparing:  the plan is assigned; workers move state, allocate, load and form groups
///   5 training:   `CommitLoop`; a lost member or a change that waits for a commit leads to 3
///   6 finishing:  the last step is committed; validation and checkpoints are awaited
///   7 ended
///
/// Changes that come while 3 and 4 last are handled by the next round. Repeated, late and stale
/// events change nothing and are counted in `dropped`.
class Coordination {
 public:
  struct Options {
    JobSpec job;
    int64_t worker_count = 0;  // To wait for.
    uint64_t term = 1;
    uint64_t committed_steps = 0;              // By the journal.
    double committed_norm = 0;                 // Gradient norm of the last of them.
    std::map<uint64_t, uint64_t> generations;  // As `CommitLoop::Past`.
    uint64_t durable_step = 0;                 // By the newest checkpoint; 0: the initial weights.
    uint64_t generation = 0;                   // Largest one of the journal.
    std::optional<Plan> last_plan;             // Of the journal: what the workers may still hold.
    std::optional<Plan> plan;    // To use as it is, for workers 1, 2, ...; none: the job's layout.
    bool only_profiles = false;  // Ends when devices and links are measured.
  };
  enum class Phase { kGathering, kProfiling, kHalting, kPreparing, kTraining, kFinishing, kEnded };
  struct Member {
    PeerNumber peer = 0;
    WorkerId id;
    JoinRequest request;
    uint64_t last_heard_us = 0;
    WorkerActivity activity;
    uint64_t eligible_us = 0;       // May be given work from then on.
    bool leaves = false;            // Its state is to move away.
    bool halted = false;            // Of the generation in force.
    std::vector<Holding> holdings;  // If halted.
    bool prepared = false;
    bool profiling = false;  // Asked to measure, and has not answered.
    std::optional<MeasuredWorker> measured;
  };

  Coordination(Options options, uint64_t now_us);

  CoordinatorDecisions on_join(PeerNumber peer, JoinRequest request, uint64_t now_us);
  CoordinatorDecisions on_profiled(WorkerId worker, MeasuredWorker measured, uint64_t now_us);
  CoordinatorDecisions on_halted(WorkerId worker, uint64_t generation,
                                 std::vector<Holding> holdings, uint64_t now_us);
  CoordinatorDecisions on_prepared(WorkerId worker, uint64_t generation, uint64_t now_us);
  CoordinatorDecisions on_ready(const ReadyReport& report, uint64_t now_us);
  CoordinatorDecisions on_reduced(ReplicaId replica, uint64_t step, double norm_squared,
                                  uint64_t now_us);
  /// The policy lets a group begin; of columns of their own pace, as the next one.
  CoordinatorDecisions on_group_start(const GroupStart& start, uint64_t now_us);
  /// The replica is through with a group of columns; not `ok`: it goes on with what it had.
  CoordinatorDecisions on_combined(ReplicaId replica, uint64_t number, bool ok, uint64_t now_us);
  CoordinatorDecisions on_journaled(uint64_t step, uint64_t now_us);
  CoordinatorDecisions on_validated(ReplicaId replica, uint64_t step, double loss_sum,
                                    uint64_t loss_tokens, uint64_t now_us);
  /// `status`: whether the stage's files are on disk.
  CoordinatorDecisions on_shard_saved(int32_t stage, uint64_t steps_done,
                                      const absl::Status& status, uint64_t now_us);
  /// A checkpoint that cannot be written stops nothing, unless it is the run's last one.
  CoordinatorDecisions on_checkpoint_completed(uint64_t steps_done, const absl::Status& status);
  CoordinatorDecisions on_snapshot_kept(WorkerId worker, int32_t stage, uint64_t steps_done);
  CoordinatorDecisions on_heartbeat(WorkerId worker, WorkerActivity activity, uint64_t now_us);
  /// A link closed, or the worker said that it cannot go on. Bad input (InvalidArgument, DataLoss,
  /// NotFound) ends the run: another worker would fail alike; one with more memory may not.
  CoordinatorDecisions on_worker_lost(WorkerId worker, const absl::Status& why, uint64_t now_us);
  /// A neighbour (`peer`; 0: not known) or a group does not answer the worker.
  CoordinatorDecisions on_trouble(WorkerId worker, WorkerId peer, const std::string& reason,
                                  uint64_t now_us);
  /// The worker must go: its state is moved away first.
  CoordinatorDecisions on_leave(WorkerId worker, const std::string& reason, uint64_t now_us);
  CoordinatorDecisions on_fault(const absl::Status& why);
  CoordinatorDecisions on_stop_request(const std::string& reason);
  CoordinatorDecisions on_timer(uint64_t now_us);

  Phase phase() const { return phase_; }
  /// Of the newest change of plan; messages of another one are stale.
  uint64_t generation() const { return generation_; }
  const std::map<WorkerId, Member>& members() const { return members_; }
  /// The plan in force, or the one before while there is none.
  const std::optional<Plan>& plan() const { return plan_; }
  /// A step may have been done in this life.
  bool has_trained() const { return has_trained_; }
  uint64_t steps_done() const { return commits_.steps_done(); }
  /// As `CommitLoop::generation_of`.
  uint64_t generation_of(uint64_t steps) const { return commits_.generation_of(steps); }
  double last_loss() const { return commits_.last_loss(); }
  Goodput goodput(uint64_t now_us) const { return goodput_.at(now_us); }
  uint64_t dropped() const { return dropped_ + commits_.dropped(); }
  const Options& options() const { return options_; }

 private:
  // Members, in coordination_members.cpp.
  WorkerId number(const JoinRequest& request);
  enum class Leavers { kWithout, kWith };
  bool may_work(const Member& member, uint64_t now_us, Leavers leavers) const;
  std::vector<WorkerId> eligible_workers(uint64_t now_us, Leavers leavers) const;
  CoordinatorDecisions welcome(PeerNumber peer, WorkerId worker, JoinRequest request,
                               uint64_t now_us);
  CoordinatorDecisions try_gather(uint64_t now_us);
  bool is_everybody_back(uint64_t now_us) const;
  CoordinatorDecisions lose_silent(uint64_t now_us);
  CoordinatorDecisions lose_slow_to_answer(uint64_t now_us);
  CoordinatorDecisions check_troubles(uint64_t now_us);
  CoordinatorDecisions check_progress(uint64_t now_us);
  std::string missing_replicas() const;
  std::string describe(WorkerId worker) const;
  bool hosts(WorkerId worker) const { return hosted_.contains(worker); }

  // Measurements, in coordination_profiles.cpp.
  bool chooses_plan() const;
  CoordinatorDecisions start_profiling(uint64_t now_us);
  CoordinatorDecisions try_finish_profiling(uint64_t now_us);
  CoordinatorDecisions tell_peers() const;
  CoordinatorDecisions request_profiles();
  RunEvent describe_measured(WorkerId worker) const;
  std::vector<MeasuredWorker> measured_workers() const;
  std::vector<MeasuredWorker> measured_workers(const std::vector<WorkerId>& workers) const;

  // Plans, in coordination_plans.cpp.
  CoordinatorDecisions begin_halt(const std::string& reason, uint64_t now_us);
  HaltWorker halt(WorkerId worker) const;
  CoordinatorDecisions try_assign(uint64_t now_us);
  CoordinatorDecisions assign(PlannedPipeline chosen, uint64_t now_us);
  CoordinatorDecisions pause(const std::string& why, uint64_t now_us);
  absl::StatusOr<PlannedPipeline> choose_plan(uint64_t now_us, Leavers leavers,
                                              bool is_urgent) const;
  CoordinatorDecisions try_start(uint64_t now_us);
  CoordinatorDecisions dismiss_leavers();
  void consider_change(uint64_t at_us);
  CoordinatorDecisions check_change(uint64_t now_us);
  CoordinatorDecisions watch_speeds();
  CoordinatorDecisions remedy_slowness(const std::vector<SpeedChange>& changes);
  std::optional<PlannedPipeline> take_remedy(uint64_t now_us);
  bool is_worthwhile(const Plan& candidate) const;
  RunEvent describe_plan(const PlannedPipeline& chosen) const;

  // Columns of their own pace, in coordination_columns.cpp.
  CoordinatorDecisions begin_segment();
  CoordinatorDecisions lose_column(WorkerId worker, uint64_t now_us);
  CoordinatorDecisions follow_columns(CoordinatorDecisions decisions, uint64_t now_us);
  void hold_for_change(const std::string& reason);
  void begin_sync_watch();
  CoordinatorDecisions watch_sync();

  bool runs_plan() const;
  CoordinatorDecisions follow(CoordinatorDecisions decisions, uint64_t now_us);
  CoordinatorDecisions try_finish();
  CoordinatorDecisions end(absl::Status status, bool stopped_early);
  CoordinatorDecisions drop();

  Options options_;
  Phase phase_ = Phase::kGathering;
  uint64_t generation_ = 0;
  uint64_t seen_generation_ = 0;  // Largest one that a worker came with.
  std::map<WorkerId, Member> members_;
  uint32_t last_worker_ = 0;
  HoldBack hold_back_;
  std::optional<Plan> plan_;
  RestoreDecision restore_;                         // Of the plan that is being prepared.
  std::vector<WorkerId> keepers_;                   // Of the plan's snapshots.
  std::map<WorkerId, std::set<ReplicaId>> hosted_;  // By the plan that is prepared or in force.
  CommitLoop commits_;
  std::optional<ColumnLoop> columns_;    // Of the plan in force, if columns have their own pace.
  bool in_columns_ = false;              // Plans are made so.
  std::optional<SyncWatch> sync_watch_;  // Of "auto", if the plan in force has columns.
  uint32_t sync_changes_ = 0;
  bool has_trained_ = false;  // Some plan has been in force in this life.
  bool is_urgent_ = false;    // A worker was lost since the last plan.
  GoodputLedger goodput_;
  SpeedWatch speeds_;
  RemedyPace remedy_pace_;
  std::optional<PlannedPipeline> remedy_;  // That the commit loop is held for.
  std::optional<std::string> halt_after_journal_;
  std::optional<uint64_t> change_at_us_;  // Members have changed: look for a better plan then.
  std::string change_reason_;             // Of the change that the commit loop is held for.
  struct Trouble {
    uint64_t at_us = 0;  // Halt then, unless a loss explains it before.
    std::string reason;
  };
  std::map<std::pair<WorkerId, WorkerId>, Trouble> troubles_;  // By who told of it, and of whom.
  uint64_t last_progress_us_ = 0;                              // For the time-outs.
  uint64_t last_join_us_ = 0;
  bool stop_requested_ = false;
  std::string stop_reason_;
  uint64_t dropped_ = 0;
};

}  // namespace skein::plans
