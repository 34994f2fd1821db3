#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "plans/base/ids.hpp"
#include "plans/job_spec.hpp"
#include "plans/plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/rank_program.hpp"

namespace skein::plans {

/// A connection to the coordinator, numbered in order of arrival.
using PeerNumber = uint64_t;

struct JoinRequest {
  std::string host_name;
  uint32_t process_id = 0;
  std::string data_address;
  std::string device;
  double speed = 1.0;
};

struct ReadyReport {
  ReplicaId replica;
  uint64_t step = 0;
  uint32_t samples = 0;
  double loss_sum = 0;
  uint64_t loss_tokens = 0;
  bool needs_groups = false;
  double norm_squared = 0;  // Final only if not `needs_groups`.
  uint64_t busy_us = 0;
  uint64_t step_us = 0;
  uint32_t stash_peak = 0;
};

/// What the coordinator keeps of a committed step.
struct CommitRecord {
  uint64_t step = 0;
  uint64_t generation = 0;
  uint64_t term = 0;
  uint64_t first_sample = 0;
  uint64_t sample_count = 0;
  double loss = 0;
  double gradient_norm = 0;
};

// What the coordinator does next.
struct WelcomeWorker {
  PeerNumber peer = 0;
  WorkerId worker;
};
struct RefusePeer {
  PeerNumber peer = 0;
  std::string reason;
};
struct AssignPlan {
  Plan plan;
  uint64_t first_step = 0;
  double predicted_step_us = 0;  // By the planner; 0: the plan was not predicted.
};
/// Ask the worker to measure its device and its links to all members; without rows: only to answer
/// the others' probes.
struct RequestProfile {
  WorkerId worker;
  std::vector<int64_t> rows;
};
/// All workers have measured: what was found.
struct ReportProfiles {
  Profile profile;
  ClusterSpec cluster;
};
struct StartRun {};
/// Write the record; `on_journaled` follows, and only then the commit.
struct JournalCommit {
  CommitRecord record;
};
struct BroadcastCommit {
  CommitOrder order;
  bool profile = false;  // Timings of the next step are wanted.
  // For reports:
  double loss = 0;
  double step_seconds = 0;
  double control_seconds = 0;  // From the last ready signal to this decision.
  uint64_t tokens = 0;
  uint64_t samples = 0;
  std::vector<double> stage_busy_seconds;
  std::vector<uint32_t> stage_stash_peak;
};
struct ReportValidation {
  uint64_t step = 0;
  double loss = 0;
  uint64_t tokens = 0;
  double seconds = 0;
};
/// Every stage has saved its files of the state after `steps_done` steps.
struct CompleteCheckpoint {
  uint64_t steps_done = 0;
  double loss = 0;
};
struct StopWorkers {
  std::string reason;
};
struct EndRun {
  absl::Status status;
  bool stopped_early = false;
};
struct RunEvent {
  std::string name;  // "worker.joined"
  std::string text;
  std::map<std::string, std::string> fields;
};

using CoordinatorDecision =
    std::variant<WelcomeWorker, RefusePeer, RequestProfile, ReportProfiles, AssignPlan, StartRun,
                 JournalCommit, BroadcastCommit, ReportValidation, CompleteCheckpoint, StopWorkers,
                 EndRun, RunEvent>;
using CoordinatorDecisions = std::vector<CoordinatorDecision>;

/// The coordinator of a synchronous run as a state machine without clock or I/O: membership, plan,
/// commits, checkpoints and the end. Times are microseconds of one steady clock.
///
///   1 gathering:  workers join until there are enough
///   2 profiling:  workers measure devices and links, one after the other on each host (only when
///   the
///                 planner is to choose, or nothing but measuring is asked for)
///   3 preparing:  the plan is assigned; workers allocate, load and form groups
///   4 training:   ready -> journal -> commit, one step after the other
///   5 finishing:  the last step is committed; validation and checkpoints are awaited
///   6 ended
///
/// Repeated, late and stale events change nothing and are counted in `dropped`.
class Coordination {
 public:
  struct Options {
    JobSpec job;
    int64_t worker_count = 0;  // To wait for.
    uint64_t term = 1;
    uint64_t first_step = 0;
    std::optional<Plan> plan;    // To use as it is, for workers 1, 2, ...; none: the job's layout.
    bool only_profiles = false;  // Ends when devices and links are measured.
  };
  enum class Phase { kGathering, kProfiling, kPreparing, kTraining, kFinishing, kEnded };
  struct Member {
    PeerNumber peer = 0;
    WorkerId id;
    JoinRequest request;
    uint64_t last_heard_us = 0;
    uint64_t steps_done = 0;
    bool prepared = false;
    bool profiling = false;  // Asked to measure, and has not answered.
    std::optional<MeasuredWorker> measured;
  };

  Coordination(Options options, uint64_t now_us);

  CoordinatorDecisions on_join(PeerNumber peer, JoinRequest request, uint64_t now_us);
  CoordinatorDecisions on_profiled(WorkerId worker, MeasuredWorker measured, uint64_t now_us);
  CoordinatorDecisions on_prepared(WorkerId worker, uint64_t generation, uint64_t now_us);
  CoordinatorDecisions on_ready(const ReadyReport& report, uint64_t now_us);
  CoordinatorDecisions on_reduced(ReplicaId replica, uint64_t step, double norm_squared);
  CoordinatorDecisions on_journaled(uint64_t step, uint64_t now_us);
  CoordinatorDecisions on_validated(ReplicaId replica, uint64_t step, double loss_sum,
                                    uint64_t loss_tokens, uint64_t now_us);
  CoordinatorDecisions on_shard_saved(int32_t stage, uint64_t steps_done, uint64_t now_us);
  CoordinatorDecisions on_checkpoint_completed(uint64_t steps_done, const absl::Status& status);
  CoordinatorDecisions on_heartbeat(WorkerId worker, uint64_t steps_done, uint64_t now_us);
  /// A link closed, or the worker said that it cannot go on.
  CoordinatorDecisions on_worker_lost(WorkerId worker, const absl::Status& why);
  CoordinatorDecisions on_fault(const absl::Status& why);
  CoordinatorDecisions on_stop_request(const std::string& reason);
  CoordinatorDecisions on_timer(uint64_t now_us);

  Phase phase() const { return phase_; }
  const std::map<WorkerId, Member>& members() const { return members_; }
  const std::optional<Plan>& plan() const { return plan_; }
  uint64_t steps_done() const { return step_; }
  double last_loss() const { return last_loss_; }
  uint64_t dropped() const { return dropped_; }
  const Options& options() const { return options_; }

 private:
  struct Reduction {
    bool done = false;
    double norm_squared = 0;
  };
  struct Validation {
    uint64_t started_us = 0;
    std::set<ReplicaId> reported;
    double loss_sum = 0;
    uint64_t loss_tokens = 0;
  };

  struct Checkpoint {
    std::set<int32_t> stages;  // Saved so far.
    double loss = 0;
  };

  CoordinatorDecisions on_gathered(uint64_t now_us);
  CoordinatorDecisions request_profiles();
  CoordinatorDecisions make_assignment(uint64_t now_us);
  absl::StatusOr<PlannedPipeline> choose_plan(const std::vector<WorkerId>& workers) const;
  std::vector<MeasuredWorker> measured_workers() const;
  CoordinatorDecisions try_commit();
  CoordinatorDecisions try_finish();
  CoordinatorDecisions end(absl::Status status, bool stopped_early);
  CoordinatorDecisions drop();
  CommitOrder make_order() const;
  BroadcastCommit make_broadcast(const CommitOrder& order, uint64_t now_us) const;
  std::string missing_replicas() const;
  std::string describe(WorkerId worker) const;

  Options options_;
  Phase phase_ = Phase::kGathering;
  std::map<WorkerId, Member> members_;
  uint32_t last_worker_ = 0;
  std::optional<Plan> plan_;
  std::map<WorkerId, std::set<ReplicaId>> hosted_;

  uint64_t step_;  // The step that is being computed; equals the number of committed steps.
  std::map<ReplicaId, ReadyReport> ready_;
  std::map<ReplicaId, Reduction> reduced_;
  std::optional<CommitRecord> journaling_;
  uint64_t last_ready_us_ = 0;
  uint64_t last_progress_us_ = 0;  // For the time-outs.
  uint64_t last_step_end_us_ = 0;  // For the reported step time.
  double last_loss_ = 0;
  std::map<uint64_t, Validation> validations_;  // By step.
  std::map<uint64_t, Checkpoint> checkpoints_;  // By steps done.
  bool stop_requested_ = false;
  std::string stop_reason_;
  uint64_t dropped_ = 0;
};

}  // namespace skein::plans
