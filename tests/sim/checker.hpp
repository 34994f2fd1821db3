#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "actors/coordinator/coordinator_process.hpp"
#include "actors/messages.hpp"
#include "actors/worker/prepare_io.hpp"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "tests/sim/carried_samples.hpp"
#include "tests/sim/disk.hpp"
#include "tests/sim/journal.hpp"
#include "tests/sim/patience.hpp"
#include "tests/sim/pipeline_claims.hpp"
#include "tests/sim/pipeline_groups.hpp"
#include "tests/sim/plan_assembly.hpp"
#include "tests/sim/watched_model.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// What a whole run computed.
struct TrainedModel {
  using Weights = std::map<std::string, std::vector<float>>;  // By parameter.
  Weights weights;                                            // After all steps but the last.
  Weights final_weights;  // After the last one; not all there if no checkpoint asked for them.
  std::map<uint64_t, double> losses;  // By step.
};

/// How the state came to a plan that was assigned after the first one.
struct RecoveryCounts {
  int kept = 0;        // From live workers, no step lost.
  int snapshot = 0;    // Rolled back to copies in memory.
  int checkpoint = 0;  // Rolled back to disk, or to the initial weights.
  int commits = 0;
  int generations = 0;
  int own_cuts = 0;  // Generations whose pipeline replicas have cuts of their own.
  int terms = 0;

  void add(const RecoveryCounts& other);
};

/// Watches a run from outside and keeps the first thing that is wrong. Each claim:
///   journal   steps are appended one after the other, with exactly their samples, in the newest
///             term and generation, and with the loss of the undisturbed run
///   commits   go out only for steps in the journal, of the same generation, in order
///   ranks     apply a step once, in order, and only if it is in the journal
///   models    that go on to another plan have exactly the steps that the plan starts with
///   replicas  of a stage have the same bits after every step, and when they start
///   rollback  has a reason in the log, and takes back no state that live processes hold, unless
///             they were silent for a lease; nobody is lost who was silent for less
///   models    that are prepared for a step have the bits that were last seen after it
///   shards    no two writers are at work on one name
///   deaths    between two operations on files leave checkpoints that are whole
///   checkpoints   that are complete verify, and have the bits that were live after their step
///   left      what workers that give up the coordinator hold between them is not lost
///   work      is done again, and plans are changed, no more often than faults explain
///   memory    a worker holds few states, and gives no plan up for which its device has room
///   fence     a coordinator in whose place a later one is writes nothing to the journal
///   loops     of processes that join and die are given a part in few plans
///   identity  a worker is taken in by one run; all that prepare a plan have its configuration, and
///             so have the models that they train
/// Under local updates, commits and models are checked where pipeline replicas meet; what
/// they do in between is checked by `PipelineClaims`, `PipelineGroups` and `CarriedSamples`.
/// Single-threaded.
class Checker {
 public:
  Checker(World& world, JournalStore& store, const Disk& disk, plans::JobSpec job,
          const TrainedModel* expected);

  const std::optional<std::string>& failure() const { return failure_; }
  void fail(const std::string& what);

  void on_control(ProcessId from, ProcessId to, const net::ControlMessage& message, bool arrives);
  void on_append(const plans::CommitRecord& record);
  void on_rewind(uint64_t first_step);
  void on_plan(const plans::Plan& plan);
  void on_event(const actors::EventReport& report);
  void on_prepare(ProcessId process, const actors::PrepareRequest& request);
  void on_prepared(ProcessId process, const actors::PreparedReplicas& result);
  /// The device is given an update, and ends it.
  void on_update_begun(ProcessId process);
  void on_update(ProcessId process);
  void on_copied(ProcessId process, uint64_t group);
  /// A sample is read for training.
  void on_read(ProcessId process, uint64_t sample);
  /// The files of a stage are being written, and are written.
  void on_shard_begun(ProcessId process, const std::string& path);
  void on_shard_ended(ProcessId process, const std::string& path);
  void on_checkpoint(const actors::CheckpointReport& report);
  void on_killed(ProcessId process);
  /// The worker ends as its coordinator is gone for good, and has written what it holds.
  void on_given_up(ProcessId process);
  /// The worker ends, and leaves nothing: it does not take the newest state along.
  void check_let_go(ProcessId worker);
  /// A worker takes part in no other plan, be it one that only saves.
  void on_incapable(ProcessId process) {
    some_cannot_save_ = true;
    incapable_.insert(process);
  }
  /// A worker's device has failed or hangs: nobody gets what is on it.
  void on_device_lost(ProcessId process) { lost_devices_.insert(process); }
  /// A process has died between two operations on files, and the disk is as it has left it.
  void on_cut_short();
  /// The device of each worker has so many bytes; 0: as many as are asked for.
  void limit_memory(int64_t bytes) { device_bytes_ = bytes; }
  /// Workers have been told how the run ended, and have not heard it yet.
  void on_result(const actors::RunResult& result);
  /// What it holds is there to be found, all of it or not.
  void on_left(ProcessId process, bool is_whole) {
    if (is_whole) {
      left_in_part_.erase(process);
      left_whole_.insert(process);
    } else {
      left_in_part_.insert(process);
    }
  }
  /// Something goes wrong: so much may be done again, and planned anew.
  void on_fault() { ++faults_; }
  /// A coordinator that was started later has its place.
  void on_superseded(ProcessId process);
  bool is_superseded(ProcessId process) const { return superseded_.contains(process); }
  /// What the process says is no claim of the run's.
  void on_stranger(ProcessId process) { strangers_.insert(process); }
  /// The process is one of a loop of those that die soon.
  void on_looper(ProcessId process) { loopers_.insert(process); }
  void on_coordinator_killed();
  void on_coordinator_started(ProcessId process);
  /// A copy of state is not what it was: whoever has it may hold nothing, until a plan starts after
  /// the copy has gone.
  void on_damage(std::weak_ptr<const void> copy) { damaged_.push_back(std::move(copy)); }
  /// A coordinator begins, which looks at the newest checkpoint.
  void on_coordinator() { coordinator_began_us_ = world_.now_us(); }
  /// Somebody writes into a file of the newest checkpoint.
  void on_tear() { torn_us_ = world_.now_us(); }
  /// The next coordinator has another configuration: what comes of it is like no other run.
  void on_other_keys() {
    has_other_keys_ = true;
    expected_ = nullptr;
  }
  /// Two workers cannot reach one another until then: what one of them holds may be of no use.
  void excuse_rollbacks_until(uint64_t time_us) { excused_us_ = std::max(excused_us_, time_us); }
  /// They cannot for as long as both live, and until a plan starts after that.
  void on_lasting_cut(ProcessId a, ProcessId b) { cuts_.emplace_back(a, b); }
  /// The journal has lost its newest entries, which are of steps below `steps`: the run may do them
  /// again, or go on from workers or a checkpoint that have done them.
  void on_power_cut(uint64_t steps) { forgotten_steps_ = std::max(forgotten_steps_, steps); }
  bool has_other_keys() const { return has_other_keys_; }

  /// When the run has ended well: nothing is missing.
  void check_end(uint64_t steps_done);
  /// Compares with another run's weights, relative to their norm.
  void check_weights(const TrainedModel& expected, double tolerance);

  const TrainedModel& model() const { return model_; }
  const RecoveryCounts& counts() const { return counts_; }
  /// Every plan had the same stages, rows and micro-batches.
  bool has_one_shape() const { return shapes_.size() <= 1; }
  std::string shape() const { return shapes_.empty() ? "" : *shapes_.begin(); }

 private:
  /// What workers have left who gave up a coordinator.
  struct Left {
    std::set<int64_t> layers;
    uint64_t since_us = 0;  // The newest of them.
  };
  struct Held {
    plans::ReplicaId id;
    int32_t stage = 0;
    WatchedModel model;
    std::vector<std::string> tensors;  // Their names.
  };
  /// What a process trains under its newest plan.
  struct Hosted {
    uint64_t generation = 0;
    std::vector<Held> replicas;
  };
  struct Assignment {
    plans::PlanPart plan;
    uint64_t first_step = 0;
    bool from_checkpoint = false;
    plans::OptimizerSpec optimizer;
    int64_t device_bytes = 0;  // That its models take; 0: devices have no limit.
  };

  void check_weights(const TrainedModel::Weights& own, const TrainedModel::Weights& expected,
                     double tolerance);
  void check_loss(const plans::CommitRecord& record);
  void on_pipeline_update(ProcessId process);
  bool has_void_part(ProcessId process) const;
  void on_global(ProcessId process, plans::ReplicaId replica, uint64_t steps_done);
  void keep_if_late(const Held& held, uint64_t steps_done);
  void check_kept(ProcessId to, const net::ControlMessage& message);
  void check_identity(ProcessId to, const net::schema::Envelope::Reader& envelope);
  void check_part(const net::ControlMessage& message);
  void check_failed(ProcessId from, const net::schema::Envelope::Reader& envelope);
  void check_commit(const net::schema::Envelope::Reader& envelope, ProcessId to);
  void check_inventory(ProcessId worker, net::schema::Quiesced::Reader quiesced);
  bool has_told_all_after(uint64_t least) const;
  /// `digests`: of the tensors that it holds.
  void check_replica(uint64_t generation, const Held& held, const std::vector<uint32_t>& digests,
                     uint64_t steps_done);
  void check_against_live(const Held& held, const std::vector<uint32_t>& digests,
                          uint64_t generation, uint64_t steps_done);
  std::string fault_of(const actors::CheckpointReport& report, const gpu::Listing& listing);
  void check_has_checkpoint(const std::string& when);
  /// Who holds the whole state of a later step than `first_step`, if there is somebody.
  std::string living_state_after(uint64_t first_step) const;
  std::pair<uint64_t, std::string> newest_living_state(uint64_t least,
                                                       std::optional<ProcessId> without) const;
  void check_left();
  void check_changes();
  bool is_whole(const std::pair<uint64_t, uint64_t>& name, const Left& left) const;
  std::string left_state_after(uint64_t first_step) const;
  void excuse_slow();
  void end_excuses();
  void keep_weights(const gpu::StageModel& model, TrainedModel::Weights& to);

  World& world_;
  JournalStore& store_;
  const Disk& disk_;
  const plans::JobSpec job_;
  const TrainedModel* expected_;  // Null: unknown.
  const std::map<std::string, std::vector<int64_t>>
      tensor_shapes_;  // Those a whole checkpoint has.
  std::optional<std::string> failure_;
  std::optional<PipelineClaims> claims_;  // If the job may do local updates.
  std::optional<PipelineGroups> groups_;
  std::optional<CarriedSamples> carried_;
  TrainedModel model_;
  RecoveryCounts counts_;
  std::set<std::string> shapes_;
  std::map<std::pair<ProcessId, uint64_t>, Assignment> assignments_;  // By generation.
  PlanAssembly assembly_;
  std::map<uint64_t, std::vector<plans::PlanPart>>
      parts_;  // While their plan is not in the journal.
  std::map<ProcessId, Hosted> hosted_;
  struct ToldLayers {
    uint64_t steps = 0;
    uint64_t generation = 0;  // In which it made the last of them.
    plans::LayerRange layers;
  };
  std::map<ProcessId, std::vector<ToldLayers>> told_;  // What each said last that it holds.
  std::map<std::weak_ptr<gpu::StageModel>, uint64_t, std::owner_less<>> applied_;  // Steps.
  /// In which generation each model made its last update.
  std::map<std::weak_ptr<gpu::StageModel>, uint64_t, std::owner_less<>> updated_in_;
  Patience patience_;
  std::vector<std::weak_ptr<const void>> damaged_;
  std::vector<std::pair<ProcessId, ProcessId>> cuts_;
  std::string thrown_away_;               // By the newest plan, if it starts.
  std::set<ProcessId> thrown_away_from_;  // Each alone has a part of that state.
  /// By a plan that threw nothing away, and the journal is not yet rewound.
  std::optional<uint64_t> goes_back_to_;
  uint64_t newest_first_step_ = 0;  // With which the newest plan begins.
  uint64_t coordinator_began_us_ = 0;
  std::optional<uint64_t> torn_us_;     // When a checkpoint was torn last.
  std::optional<uint64_t> started_us_;  // When a plan was started last.
  uint64_t appended_us_ = 0;            // When the newest step came into the journal.
  std::map<std::tuple<uint64_t, int32_t, uint64_t>, uint64_t> digests_;
  std::map<std::tuple<ProcessId, uint64_t, uint64_t>, uint64_t> last_commit_;  // By term, gen.
  std::map<uint64_t, bool> seen_generations_;
  std::set<std::pair<uint64_t, uint64_t>> journaled_;  // Generations and steps, also void ones.
  struct LiveTensor {
    uint32_t digest = 0;   // As in a checkpoint.
    uint64_t seen_in = 0;  // The generation of its digest.
  };
  struct Live {
    uint64_t generation = 0;
    std::map<std::string, LiveTensor> tensors;  // By name.
  };
  std::map<uint64_t, Live> live_;                 // By steps done.
  std::multimap<std::string, ProcessId> shards_;  // That are being written.
  bool some_cannot_save_ = false;
  std::set<ProcessId> incapable_;
  std::set<ProcessId> lost_devices_;
  int64_t device_bytes_ = 0;
  bool keeps_nothing_ = false;  // The run has ended, and has no checkpoints.
  bool had_checkpoint_ = false;
  std::optional<uint64_t> looked_through_in_;    // Generation of the last whole look at one.
  std::map<ProcessId, plans::WorkerId> ids_;     // As it was taken in last.
  std::map<ProcessId, std::string> runs_;        // That a process has joined.
  std::map<uint64_t, uint64_t> config_digests_;  // By generation.
  bool has_other_keys_ = false;
  uint64_t excused_us_ = 0;
  uint64_t forgotten_steps_ = 0;                        // The journal need not have all of these.
  std::map<std::pair<uint64_t, uint64_t>, Left> left_;  // By steps done and generation.
  std::set<ProcessId> left_in_part_;
  std::set<ProcessId> left_whole_;
  std::set<ProcessId> strangers_;
  std::set<ProcessId> superseded_;
  /// Generations in which workers have a part for a superseded coordinator: what they do in it
  /// counts for nothing, and is not followed.
  std::map<ProcessId, uint64_t> void_parts_;
  int faults_ = 0;
  int rewinds_that_cost_ = 0;
  std::deque<uint64_t> planned_us_;                // When plans were assigned, in a minute.
  std::map<uint64_t, uint64_t> digests_of_terms_;  // Digests of the configuration.
  std::set<ProcessId> loopers_;
  std::set<ProcessId> loopers_of_plans_;  // In one life of the coordinator.
  int rewinds_ = 0;
  int rollback_events_ = 0;
  int coordinator_kills_ = 0;
};

}  // namespace skein::sim
