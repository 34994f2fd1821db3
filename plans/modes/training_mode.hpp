#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/outcome.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// All that a commit says about the work behind it.
struct CommitTotals {
  uint64_t end_step = 0;  // The commit covers the steps from the last one up to here.
  double loss_sum = 0;
  uint64_t loss_tokens = 0;
  double gradient_norm = 0;                // The step's; the mean, if there are several updates.
  std::vector<double> stage_busy_seconds;  // [stages], mean of the replicas.
  /// [stages], mean of the replicas: the devices were with other jobs; empty: they are not shared.
  std::vector<double> stage_device_wait_seconds;
  std::vector<uint32_t> stage_stash_peak;    // [stages]
  std::vector<uint64_t> replica_samples;     // [pipeline replicas]; empty: they train together.
  std::vector<uint64_t> stage_staleness;     // [stages], largest of the groups; or empty.
  std::vector<uint32_t> stage_weight_delay;  // [stages], as in `ReadyReport`; or empty.
  uint64_t snapshot_us = 0;                  // Longest copy of a snapshot; 0: none was taken.
  /// The longest that a replica was at one thing, an iteration or the end of a round; 0: it was at
  /// one since the last commit.
  uint64_t longest_pass_us = 0;
};

/// What the timings of a commit's work tell those that watch them.
struct ModeTimings {
  /// The one step behind the commit; empty if replicas wait for nobody, so that none holds up
  /// the others.
  std::map<ReplicaId, ReadyReport> step_reports;
  struct Pass {
    uint32_t pipeline_replica = 0;
    uint64_t step_us = 0;                   // Its slowest stage.
    std::map<ReplicaId, uint64_t> busy_us;  // What each of its replicas was.
  };
  std::vector<Pass> passes;  // In the order in which they ended; for plans of pipeline replicas.
};

/// What a mode decides: orders to workers, and perhaps that there is something to commit.
struct ModeDecisions {
  CoordinatorDecisions orders;
  std::optional<CommitTotals> completed;  // Everything up to `end_step` is done: commit it.
  std::optional<std::string> failed;      // What was done since the last commit cannot be ended.
};
using ModeOutcome = Outcome<ModeDecisions>;

/// How a plan's work becomes committed steps: the only thing on the coordinator's side that knows
/// how gradients become updates. One object for each plan in force, listed in `mode_list.cpp`. A
/// state machine without clock or I/O; times are microseconds of one steady clock. Not thread-safe.
///
/// `begin`, events until `completed`, the commit, `begin` again. Between `completed` and the next
/// `begin` it takes no reports.
class TrainingMode {
 public:
  virtual ~TrainingMode() = default;

  /// The steps [first, end) are next, and everything before is committed. `end` is at most
  /// `commit_steps()` ahead.
  virtual ModeDecisions begin(uint64_t first_step, uint64_t end_step, uint64_t now_us) = 0;
  virtual ModeOutcome on_ready(WorkerId sender, const ReadyReport& report, uint64_t now_us) = 0;
  /// The first gradients of its step are final: `on_ready` follows.
  virtual ModeOutcome on_early_signal(WorkerId sender, ReplicaId replica, uint64_t step,
                                      uint64_t now_us);
  virtual ModeOutcome on_reduced(WorkerId sender, ReplicaId replica, uint64_t step,
                                 double norm_squared, uint64_t now_us);
  /// What has become of a token of the replica.
  virtual ModeOutcome on_token(WorkerId sender, ReplicaId replica, uint64_t step, int32_t token,
                               TokenEvent event, uint64_t now_us);
  /// The replica is through with a group; not `ok`: it goes on with what it had.
  virtual ModeOutcome on_averaged(WorkerId sender, ReplicaId replica, uint64_t number, bool ok,
                                  uint64_t now_us);
  /// A held-out loss, of the weights of a step at which all had met.
  virtual void on_validation(double /*loss*/) {}
  /// What a worker has said of the device that it shares with other jobs, when it was prepared.
  virtual void on_turn_report(WorkerId /*worker*/, const TurnReport& /*report*/) {}
  /// The position of the pass that the next order of a start or a commit begins with; 0: none is
  /// named. Called once for each of them.
  virtual uint64_t name_turn() { return 0; }
  virtual ModeDecisions on_timer(uint64_t now_us);
  /// When to call `on_timer`; none: never.
  virtual std::optional<uint64_t> wake_us() const { return std::nullopt; }

  /// The next commit is the last one of the plan, and should come soon.
  virtual void cut_short() {}
  /// True if the others go on when a worker of the plan is lost; then `lose` says how. Else a loss
  /// ends the plan.
  virtual bool survives_losses() const { return false; }
  virtual ModeDecisions lose(WorkerId worker, uint64_t now_us);
  /// Every replica of the plan is there.
  virtual bool is_whole() const { return true; }

  /// How many steps one commit may cover.
  virtual uint64_t commit_steps() const { return 1; }
  /// `cut_short` makes the next commit one of the steps that are in progress, if it would be one of
  /// `commit_steps()`: how long that still takes, at most, in microseconds. None: it does not.
  virtual std::optional<double> time_when_cut_short(uint64_t /*now_us*/) const {
    return std::nullopt;
  }
  /// Replicas leave the committed state as soon as they have it, so each commit orders a snapshot.
  virtual bool leaves_commits_behind() const { return false; }
  /// For reports: which pipeline replica a replica belongs to; -1: all do every step together.
  virtual int32_t pipeline_replica_of(ReplicaId) const { return -1; }
  /// The replica's part of what is in progress is awaited.
  virtual bool awaits(ReplicaId replica) const = 0;
  /// The timings behind the last `completed`.
  virtual ModeTimings last_timings() const = 0;

  /// A full sweep; ends the process if something does not hold.
  virtual void check_invariants() const = 0;
};

}  // namespace skein::plans
