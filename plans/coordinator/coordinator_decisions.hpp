#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "plans/base/ids.hpp"
#include "plans/base/outcome.hpp"
#include "plans/elastic/restore.hpp"
#include "plans/modes/claim_pool.hpp"
#include "plans/plan/plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/share/turn_report.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::plans {

// What the coordinator hears, as values.

/// A connection to the coordinator, numbered in order of arrival.
using PeerNumber = uint64_t;

struct JoinRequest {
  std::string host_name;
  uint32_t process_id = 0;
  std::string data_address;
  std::string device;
  double speed = 1.0;
  WorkerId previous;           // What it was on a connection that was lost; 0: new.
  uint64_t generation = 0;     // Largest that it has seen.
  std::string run;             // Id of the run that it serves; empty: none yet.
  uint64_t config_digest = 0;  // The digest of the configuration that it has; 0: none yet.
  std::string remote_host;     // Where its connection comes from; not part of what it says.
  bool operator==(const JoinRequest&) const = default;
};

struct ReadyReport {
  ReplicaId replica;
  uint64_t step = 0;
  double loss_sum = 0;
  uint64_t loss_tokens = 0;
  bool needs_groups = false;
  double norm_squared = 0;  // Final only if not `needs_groups`.
  uint64_t busy_us = 0;
  uint64_t step_us = 0;
  uint32_t stash_peak = 0;
  uint64_t snapshot_us = 0;  // Device time of the last snapshot's copy; 0: none was taken.
  /// Updates of the stage between the forward of a micro-batch and its backward, the most of the
  /// step; more than 0 only with several claims in flight.
  uint32_t weight_delay = 0;
  uint64_t device_wait_us = 0;  // Other jobs had the device: in `step_us`, and not in `busy_us`.
  TurnReport turns;
  bool operator==(const ReadyReport&) const = default;

  /// What the step has taken but for the time in which other jobs had the device.
  uint64_t own_step_us() const { return step_us - std::min(step_us, device_wait_us); }
};

/// What a worker does, for people and to find who holds up a step.
struct WorkerActivity {
  uint64_t steps_done = 0;
  std::string action;  // "2B5"; what its device works on, or what it waits for.
  uint64_t action_us = 0;
  bool works = false;          // The device works; false: it waits.
  bool awaits_device = false;  // For the device, which is with another job; not with `works`.
  std::string device;          // Its name; empty: not known yet.
  DropCounts dropped;          // Events that changed nothing, since the worker started.
  bool operator==(const WorkerActivity&) const = default;
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
  std::string run;  // That is here, if the peer serves another one; else empty.
};
/// Ask the worker to measure its device and its links to `peers`, who measure theirs to it; without
/// rows: only to answer their probes.
struct RequestProfile {
  WorkerId worker;
  std::vector<int64_t> rows;
  std::vector<WorkerId> peers;
};
/// All workers have measured: what was found.
struct ReportProfiles {
  Profile profile;
  ClusterSpec cluster;
};
/// The worker stops what it does for older generations than `generation`, applies the last of
/// `committed_steps` if it waits for that commit, and says what state it holds.
struct QuiesceWorker {
  WorkerId worker;
  uint64_t generation = 0;
  uint64_t committed_steps = 0;
  double gradient_norm = 0;           // The last one's.
  uint64_t committed_generation = 0;  // In which it was committed; 0: nobody waits for it.
};
struct AssignPlan {
  Plan plan;
  double predicted_step_us = 0;  // By the planner; 0: the plan was not predicted.
  RestoreDecision restore;
  std::vector<WorkerId> snapshot_peers;  // Who keeps each stage's snapshots; 0: nobody.
  uint64_t state_generation = 0;         // In which the step before the first one was committed.
  std::vector<ActionTimes> times;        // [S] For the order of communication.
};
/// Everybody is prepared. `order` is what is left to do of the step before the first one.
struct StartRun {
  CommitOrder order;
};
/// Commits of steps >= `first_step` are void: the state was rolled back. The journal needs no
/// answer: a coordinator that dies before it is written finds the same in the workers.
struct RewindJournal {
  uint64_t first_step = 0;
};
/// Write the record; `on_journaled` follows, and only then the commit.
struct JournalCommit {
  CommitRecord record;
};
struct BroadcastCommit {
  CommitOrder order;
  uint64_t generation = 0;  // The plan's that did the step: a change of plan may follow at once.
  bool profile = false;     // Timings of the next step are wanted.
  // What reports say:
  double loss = 0;
  double step_seconds = 0;
  double control_seconds = 0;  // From the last ready signal to this decision.
  uint64_t tokens = 0;
  uint64_t samples = 0;
  std::vector<double> stage_busy_seconds;
  std::vector<double> stage_device_wait_seconds;
  std::vector<uint32_t> stage_stash_peak;
  /// Pipeline replicas under local updates: what each has trained on; and for each stage the
  /// largest staleness of a group, and the largest delay of its weights.
  std::vector<uint64_t> pipeline_samples;
  std::vector<uint64_t> stage_staleness;
  std::vector<uint32_t> stage_weight_delay;
};
/// A pipeline replica goes on with an iteration under local updates, on samples that are claimed to
/// it.
struct ClaimSamples {
  uint32_t pipeline = 0;
  uint64_t step = 0;  // Its own iterations so far.
  SampleClaim claim;
  bool profile = false;  // Timings of the iteration are wanted.
  uint64_t turn = 0;     // As in `CommitOrder`.
};
/// All replicas of a pipeline replica are ready: they apply their updates.
struct CommitPipeline {
  uint32_t pipeline = 0;
  uint64_t step = 0;  // The pipeline replica's own.
  double gradient_norm = 0;
  std::optional<SampleClaim> next;  // Goes on with it once it has averaged; none: waits for more.
  bool profile = false;             // Timings of the next iteration are wanted.
  SampleClaim claim;                // That the iteration has trained on, for reports.
  uint64_t turn = 0;                // As in `CommitOrder`, of the next iteration.
};
/// The members of a group average their weights, or push their updates to the stage's parameter
/// server and take its weights.
struct AverageWeights {
  uint64_t number = 0;
  int32_t stage = 0;
  std::vector<GroupMember> members;  // One: it goes on alone.
  std::vector<ReplicaId> shards;     // The server's; empty: there is none.
  bool has_group_server = false;     // With one: the members have one of their own in between.
  bool is_closing = false;           // For members that wait for samples, at a round's end.
  bool is_global = false;            // All pipeline replicas take the mean, of moments as well.
  uint64_t steps_done = 0;           // is_global: of the job, after which the mean is the state.
  uint64_t staleness = 0;            // As `GroupStart::staleness`.
};
/// The group lacks a member: these go on with what they have.
struct AbortGroup {
  uint64_t number = 0;
  std::vector<ReplicaId> members;
};
/// What a replica is told of a token.
struct OrderToken {
  TokenOrder order;
};
/// Something for the planner to think about; `PlanReady` with the same id is the answer.
struct PlannerQuestion;
struct RequestPlan {
  uint64_t id = 0;
  std::shared_ptr<const PlannerQuestion> question;
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
/// Delete what has been written of checkpoints that will not be complete: of older generations, and
/// of this one up to `steps_done` steps, but for those of `under_way`.
struct DeletePartials {
  uint64_t generation = 0;
  uint64_t steps_done = 0;
  std::set<uint64_t> under_way;
};
/// Take the state of a stage's layers from the worker that leads it, and save it as that worker
/// would. Events for each layer and for the end follow.
struct ReceiveShard {
  uint64_t generation = 0;
  WorkerId sender;
  int32_t stage = 0;
  int32_t stage_count = 0;  // The number of stages of the plan.
  LayerRange layers;
  uint64_t steps_done = 0;    // In the state.
  bool is_discarded = false;  // Its checkpoint has failed: it is not saved, only out of the way.
};
/// The shard that is received is not waited for any longer: what has come of it is dropped.
struct AbandonShard {
  int32_t stage = 0;
  uint64_t steps_done = 0;
};
/// State of older generations is neither received nor sent any more, and shards of theirs that are
/// on disk count for nothing.
struct EndTransfers {
  uint64_t generation = 0;
};
/// Send the state of these layers out of the checkpoint that the plan starts with to a worker that
/// does not see it; an event follows if it cannot be read.
struct SendLayers {
  uint64_t generation = 0;
  WorkerId worker;
  std::vector<int64_t> layers;
  uint64_t steps_done = 0;  // In the checkpoint.
};
/// Read the checkpoint to go on from, and older ones while it is damaged; a `CheckpointVerdict`
/// follows.
struct VerifyCheckpoint {
  uint64_t steps_max = 0;  // Newer ones do not count.
};
/// Before steps are taken back: make a checkpoint of newer state that workers have left on disk who
/// gave this coordinator up; `on_left_state` is to hear of it.
struct SeekLeftState {
  uint64_t steps_done = 0;                   // By the run.
  std::map<uint64_t, uint64_t> generations;  // As `CommitLog::Past`.
  double loss = 0;                           // That of the last step.
};
/// The worker leaves; the run goes on.
struct StopWorker {
  WorkerId worker;
  std::string reason;
};
/// The worker is no member any more: close its connection. It may come back as a new one.
struct DismissWorker {
  WorkerId worker;
};
/// Find out whether anybody still listens at this address of a worker whose connection has ended:
/// if nobody does, its process is dead, and `on_worker_gone` is to hear of it.
struct CheckListener {
  std::string address;
};
struct StopWorkers {
  std::string reason;
  bool keeps_state = false;  // Steps that they hold are in no checkpoint: they write them.
  bool is_whole = false;     // keeps_state: all that hold a part of it are there.
};
struct EndRun {
  absl::Status status;
  bool stopped_early = false;
};
struct RunEvent {
  std::string name;  // "worker.joined"
  std::string text;
  std::map<std::string, std::string> fields;
  bool anybody_may_cause = false;  // Whoever joins can: it is told only so often.
};

using CoordinatorDecision =
    std::variant<WelcomeWorker, RefusePeer, RequestProfile, ReportProfiles, QuiesceWorker,
                 AssignPlan, StartRun, RewindJournal, JournalCommit, BroadcastCommit, ClaimSamples,
                 CommitPipeline, AverageWeights, AbortGroup, OrderToken, RequestPlan,
                 ReportValidation, CompleteCheckpoint, DeletePartials, ReceiveShard, AbandonShard,
                 EndTransfers, SendLayers, VerifyCheckpoint, SeekLeftState, StopWorker,
                 DismissWorker, CheckListener, StopWorkers, EndRun, RunEvent>;
using CoordinatorDecisions = std::vector<CoordinatorDecision>;

/// Ends the run, as `what` has a loss or a gradient norm that is not finite.
CoordinatorDecision diverged(const std::string& what, double loss, double gradient_norm);
/// The same, as gradients are added up exactly and one is too large for that, or no number.
CoordinatorDecision too_large(const std::string& what);

/// Puts the decisions of `from` behind those of `to`.
void append(CoordinatorDecisions& to, CoordinatorDecisions from);

}  // namespace skein::plans
