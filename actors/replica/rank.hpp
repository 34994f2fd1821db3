#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/averaging/weight_exchange.hpp"
#include "actors/averaging/weight_server.hpp"
#include "actors/collectives/group_io.hpp"
#include "actors/collectives/stage_link_io.hpp"
#include "actors/fail_point.hpp"
#include "actors/messages.hpp"
#include "actors/replica/shard_io.hpp"
#include "actors/worker/prepare_io.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/device_pool.hpp"
#include "gpu/model/stage_model.hpp"
#include "gpu/staging_pool.hpp"
#include "net/codec/envelope.hpp"
#include "net/data/data_plane.hpp"
#include "plans/collectives/collective_order.hpp"
#include "plans/collectives/communication_order.hpp"
#include "plans/collectives/gradient_buckets.hpp"
#include "plans/worker/rank_program.hpp"

namespace skein::actors {

/// A rank has stopped: nothing of it runs on the device or in a group any more.
struct RankRetired {
  uint64_t generation = 0;
  uint64_t steps_done = 0;       // That its models have applied.
  bool has_common_state = true;  // Its models have applied no more than these.
  std::vector<PreparedReplica> replicas;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::RankRetired)

namespace skein::actors {

/// Who owns a rank.
using RankListener = caf::typed_actor<caf::reacts_to<WorkerFault>, caf::reacts_to<RankRetired>,
                                      caf::reacts_to<SnapshotTaken>, caf::reacts_to<RankActivity>>;

/// A tensor has been written to its socket; for the trace.
struct TensorSent {
  int32_t stage = 0;
  std::string slice;
  int32_t microbatch = 0;
  uint64_t start_us = 0;
};

/// A chunk of weights that a column combines with others.
struct ChunkArrived {
  net::TensorKey key;
  net::TensorHandle chunk;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TensorSent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::ChunkArrived)

namespace skein::actors {

/// Drives the replicas that a worker holds, one of each stage of its rank, through their schedule.
/// What to do next is decided by `plans::RankProgram`; this actor asks the device, the groups and
/// the network to do it.
///   in   Envelope    Start, GroupStart, Commit from the coordinator; for columns of their own
///        pace, Lease, ColumnCommit, Combine, Dissolve; others are dropped
///   in   InputArrived     a neighbour's tensor; of another generation: dropped by the inbox
///   in   WorkDone         from the device, in the order of the work
///   in   ReductionDone    from a GroupIo
///   in   TransferDone     from a StageLinkIo
///   in   ShardWritten     from the ShardIo
///   in   RetireRank       from the Worker: starts nothing new, and ends when nothing runs
///   in   HeartbeatAtom    from the Worker: what it does goes to the listener
///   in   ClockOffset      from the Worker
///   in   TensorSent       from the data plane, while a step is profiled
///   in   ChunkArrived     weights of another column
///   out  Ready, Reduced, Combined, Validated, ShardSaved, Timings to the coordinator; WorkerFault,
///        RankRetired, RankActivity and (from the ShardIo) SnapshotTaken to the listener
using Rank = caf::typed_actor<
    caf::reacts_to<net::Envelope>, caf::reacts_to<InputArrived>, caf::reacts_to<WorkDone>,
    caf::reacts_to<ReductionDone>, caf::reacts_to<ShardWritten>, caf::reacts_to<ClockOffset>,
    caf::reacts_to<TensorSent>, caf::reacts_to<ChunkArrived>, caf::reacts_to<RetireRank>,
    caf::reacts_to<HeartbeatAtom>, caf::reacts_to<TransferDone>>;

struct RankConfig {
  plans::JobSpec job;
  plans::Plan plan;
  uint64_t first_step = 0;
  std::vector<PreparedReplica> replicas;  // By ascending stage.
  std::shared_ptr<const gpu::TokenData> data;
  std::shared_ptr<gpu::Device> device;
  ShardIo shards;
  std::map<plans::GroupId, GroupIo> groups;
  std::set<plans::GroupId> device_groups;  // Of them, that add up in the device's memory.
  /// By the stage in front: of the neighbouring stages whose devices pass on activations.
  std::map<int32_t, StageLinkIo> links;
  std::shared_ptr<net::DataPlane> plane;
  std::map<plans::WorkerId, std::string> addresses;  // Of the workers' data planes.
  std::shared_ptr<net::ControlLink> link;            // To the coordinator.
  net::EnvelopeHead head;
  std::vector<plans::WorkerId> keepers;  // Of each stage's snapshots.
  RankListener listener;
  FailPointHandle fail_point;  // Of tests; else null.
};

/// A group of columns that a replica is in.
struct Combination {
  uint64_t number = 0;
  int32_t stage = 0;
  std::vector<plans::GroupMember> members;
  bool is_passive = false;
  bool is_common = false;
  uint64_t staleness = 0;
  bool has_server = false;  // `own` is what the weights have changed by.
  bool is_copied = false;
  bool is_written = false;                            // The result is on its way into the model.
  std::shared_ptr<std::vector<float>> own;            // What we put in.
  std::shared_ptr<const std::vector<float>> pending;  // That was in it.
};

/// One replica on this worker: its model, its neighbours, and what it has done in the step.
struct HeldReplica {
  PreparedReplica parts;
  int32_t stage = 0;
  plans::RowRange rows;
  std::vector<plans::Route> routes_forward;
  std::vector<plans::Route> routes_backward;
  std::shared_ptr<gpu::StagingPool> staging;
  std::shared_ptr<gpu::DevicePool> device_tensors;  // For the links; null: it has none.
  std::map<int64_t, std::shared_ptr<gpu::StagingPool>> snapshots;  // By layer.
  std::shared_ptr<double> norm_squared = std::make_shared<double>(0);
  double block_count = 0;  // Transformer blocks of the stage.
  double row_share = 0;    // Rows / training.micro_batch_size; times blocks, it is `Work::share`.
  std::vector<plans::GradientBucket> buckets;  // Of the stage's group.

  // Of a column of its own pace:
  uint64_t staleness = 0;     // Of its last group.
  uint64_t newest_group = 0;  // That it was told of.
  std::unique_ptr<WeightExchange> exchange;
  std::unique_ptr<WeightServer> server;       // If columns have one.
  std::shared_ptr<std::vector<float>> taken;  // What was taken from it last.
  std::optional<Combination> combination;
  int void_copies = 0;  // Under way, for groups that were dissolved.
  /// What groups in which the replica was passive add to its weights; null: nothing.
  std::shared_ptr<const std::vector<float>> pending;

  // Since the last ready signal.
  uint64_t busy_us = 0;
  uint64_t parts_start_us = 0;  // Of an action that is run in parts.
  uint64_t ready_us = 0;
  uint32_t stashes = 0;
  uint32_t stash_peak = 0;
  uint64_t snapshot_us = 0;  // Of the last one.
};

/// The output of a piece of work on its way to the neighbours. It leaves from the device's thread
/// as soon as it is made: the way over this actor would cost the neighbour a wake of a thread.
struct Outgoing {
  net::TensorHandle memory;  // Null: there is no output, or nobody takes it.
  std::shared_ptr<net::DataPlane> plane;
  std::vector<std::pair<std::string, net::DataPlane::Rows>> parts;  // With their addresses.
  Rank listener;    // Told the end of each transfer while a step is profiled; else null.
  TensorSent sent;  // What it is told.

  void send(uint64_t now_us);
};

/// Rows that the device sends to another, or receives, in a step.
struct DeviceTransfer {
  plans::TransferId id;
  int32_t front = 0;  // Of the link.
  int32_t stage = 0;  // Of ours.
  bool is_sent = false;
  net::TensorKey key;  // Of the tensor, for its receiver.
  plans::WorkerId peer;
  int64_t float_begin = 0;  // Of the rows, in the tensor here.
  int64_t float_count = 0;
  net::TensorHandle tensor;  // On the device. Null: it is not there yet.
  uint64_t start_us = 0;
};
/// An input that comes in parts.
struct Arriving {
  net::TensorHandle tensor;
  int64_t floats_left = 0;
};

/// Pooled memory as a tensor that gives it back with its last handle.
net::TensorHandle as_tensor(gpu::StagingPool::Handle memory);

/// Tokens by which a rank tells its pieces of work apart.
constexpr uint64_t kProgramWork = 0;
constexpr uint64_t kSaveWork = 1;
constexpr uint64_t kSnapshotWork = 2;
constexpr uint64_t kLastWork = 3;
constexpr uint64_t kColumnWork = 16;  // The first one for groups of columns.

struct RankState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "rank";

  Rank::stateful_pointer<RankState> self = nullptr;
  RankConfig config;
  std::optional<plans::RankProgram> program;
  std::map<int32_t, HeldReplica> held;      // By stage.
  std::map<uint64_t, Combination> offered;  // By number: that the program has not begun.
  std::set<uint64_t> dissolved;             // Of them, by number.
  int64_t row_floats = 0;                   // T * C
  std::map<plans::InputKey, net::TensorHandle> inputs;

  /// A piece of the program's work that the device has.
  struct Running {
    plans::RankCommand command;
    uint64_t submitted_us = 0;
  };
  std::deque<Running> running;    // In the order of submission, which is that of the device.
  uint64_t device_free_us = 0;    // When the newest piece of work ended.
  int32_t worker_number_max = 0;  // Of the plan: so many take turns in a scenario.
  uint64_t step_start_us = 0;
  uint64_t activity_since_us = 0;     // What the program does began or ended then.
  int reductions = 0;                 // That a group or link runs, with its transfers.
  plans::CollectiveOrder order;       // Of the groups and links that share the device.
  plans::CommunicationPlaces places;  // Of the plan.
  uint64_t ordered_until = 0;         // Their operations of the steps before it are in the order.
  std::map<plans::CollectiveKey, DeviceTransfer> transfers;  // That have not ended.
  std::map<std::tuple<int32_t, plans::ActionType, int32_t>, net::TensorHandle> outputs;  // To come.
  std::map<plans::InputKey, Arriving> arriving;
  std::map<plans::CollectiveKey, plans::RunReduction> reductions_ready;
  bool retires = false;
  bool device_is_drained = false;  // While it retires.

  // The trace.
  int64_t clock_offset_us = 0;
  bool profiles = false;
  std::map<int32_t, std::vector<SliceReport>> slices;  // By stage.
  std::map<plans::GroupId, uint64_t> reduce_start_us;

  void start(RankConfig new_config);
  void hold(const PreparedReplica& parts);
  void open_inputs(const HeldReplica& replica);
  uint64_t now_us() const;
  void on_control(const net::Envelope& message);
  void on_input(const InputArrived& arrived);
  void on_work_done(const WorkDone& done);
  void on_shard_written(const ShardWritten& written);
  void on_retire(const RetireRank& order);
  void try_retire();
  void tell_activity();
  void fail(const absl::Status& why);
  absl::Status with_estimates(absl::Status why) const;

  /// Starts the commands in order.
  void apply(const plans::RankCommands& commands);
  void carry_out(const plans::RunAction& command);
  void carry_out(const plans::RunNorm& command);
  void carry_out(const plans::RunUpdate& command);
  void carry_out(const plans::RunValidation& command);
  void carry_out(const plans::SendReady& command);
  void carry_out(const plans::SendReduced& command);
  void carry_out(const plans::SaveState& command);
  void carry_out(const plans::KeepSnapshot& command);
  void carry_out(const plans::SendValidated& command);

  // Groups, in rank_reductions.cpp.
  plans::RankProgram::GroupRole role_in(plans::GroupId group, const HeldReplica& replica) const;
  void carry_out(const plans::RunReduction& command);
  void reduce(const plans::RunReduction& command);
  plans::CollectiveKey collective_key(plans::GroupId group, uint64_t step, int32_t bucket) const;
  void expect_operations(uint64_t step);
  void begin_operation(const std::optional<plans::CollectiveKey>& key);
  gpu::GradientParts host_parts(const HeldReplica& replica) const;
  void on_reduction_done(const ReductionDone& done);

  // Links, in rank_transfers.cpp.
  const StageLinkIo* link_of(int32_t from_stage, net::schema::TensorKind kind) const;
  bool is_linked(int32_t stage) const;
  void expect_transfers(const HeldReplica& replica, uint64_t step);
  void expect(const HeldReplica& replica, int32_t front, net::schema::TensorKind kind,
              const plans::TransferId& id, const plans::Route& route, uint64_t step);
  void await_inputs(uint64_t step);
  void pass_on(const plans::RunAction& run);
  void transfer(const plans::CollectiveKey& key);
  void on_transfer_done(const TransferDone& done);

  // Columns of their own pace, in rank_columns.cpp.
  void open_exchange(HeldReplica& replica);
  HeldReplica* find_replica(plans::ReplicaId id);
  bool on_column_control(const net::ControlBody& body);
  void on_lease(const net::Claim& claim);
  void on_column_commit(const net::CommitUpdate& commit);
  void on_combine(const net::Average& average);
  void on_dissolve(const net::AbortGroup& abort);
  void carry_out(const plans::RunCombination& command);
  void begin_combination(HeldReplica& replica);
  void submit_column_work(uint64_t what, int32_t stage, gpu::Work work);
  void on_column_work(uint64_t number);
  void on_chunk(const ChunkArrived& arrived);
  void begin_serving();
  void begin_serving(HeldReplica& replica);
  void on_exchanged(HeldReplica& replica, std::vector<float> values);
  void on_pulled(HeldReplica& replica, std::optional<WeightServer::Done> done);
  bool is_group(const HeldReplica& replica, const Combination& combination) const;
  void end_combination(HeldReplica& replica, bool ok);
  void end_profiled_step(uint64_t step, bool profiles_next);

  // Device work, in rank_work.cpp.
  /// Layers that a piece of a backward passes.
  /// What a device's scenario goes by. Only the first part of an action sleeps.
  plans::WorkPiece piece_of(const plans::RankCommand& command) const;
  static std::string name_of(const plans::RankCommand& command);
  plans::LayerRange layers_of(const plans::RunAction& run, const HeldReplica& replica) const;
  uint64_t first_row(const plans::RunAction& run, const HeldReplica& replica) const;
  gpu::Work forward_work(const plans::RunAction& run, HeldReplica& replica,
                         const net::TensorHandle& output);
  gpu::Work backward_work(const plans::RunAction& run, HeldReplica& replica,
                          const net::TensorHandle& output);
  gpu::Work validation_work(const plans::RunValidation& run, HeldReplica& replica,
                            const net::TensorHandle& output);
  gpu::Work update_work(const plans::RunUpdate& run);
  net::TensorHandle take_input(const plans::InputKey& key);
  void submit(const plans::RankCommand& command, gpu::Work work, Outgoing output = {});
  void submit_aside(uint64_t token, gpu::Work work);
  /// Memory and destinations of an output that is about to be made; empty if nobody takes it.
  Outgoing outgoing(const HeldReplica& from, net::schema::TensorKind kind, uint64_t step,
                    int32_t microbatch);

  // Reports, in rank_reports.cpp.
  void finish(const Running& work, uint64_t start_us, uint64_t end_us);
  void finish_action(const plans::RunAction& run, HeldReplica& replica);
  void record(int32_t stage, const std::string& slice, uint8_t track, uint64_t start_us,
              uint64_t end_us, int32_t microbatch);
  void send_timings(uint64_t step);
  void report(const net::ControlBody& body) { config.link->send(net::encode(config.head, body)); }
};

double block_count(const plans::ModelSpec& model, const plans::LayerRange& layers);

/// Copies the whole state of `model` into `copy`, whose `parameters` are set.
absl::Status snapshot(const gpu::StageModel& model, ShardRequest& copy);

Rank::behavior_type rank(Rank::stateful_pointer<RankState> self, RankConfig config);

}  // namespace skein::actors
