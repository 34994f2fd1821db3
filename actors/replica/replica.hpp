#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/averaging/stage_averages.hpp"
#include "actors/collectives/group_io.hpp"
#include "actors/collectives/stage_link_io.hpp"
#include "actors/fail_point.hpp"
#include "actors/messages.hpp"
#include "actors/replica/device_operations.hpp"
#include "actors/replica/device_work.hpp"
#include "actors/replica/link_transfers.hpp"
#include "actors/replica/reductions.hpp"
#include "actors/replica/replica_messages.hpp"
#include "actors/replica/reports.hpp"
#include "actors/replica/shard_io.hpp"
#include "actors/replica/stage_replica.hpp"
#include "actors/replica/state_copies.hpp"
#include "actors/replica/step_trace.hpp"
#include "actors/replica/tensor_traffic.hpp"
#include "gpu/data/token_data.hpp"
#include "net/control/envelope.hpp"
#include "net/data/data_plane.hpp"
#include "plans/modes/mode_list.hpp"
#include "plans/worker/worker_program.hpp"

namespace skein::actors {

/// Who owns a Replica.
using ReplicaListener =
    caf::typed_actor<caf::reacts_to<WorkerFault>, caf::reacts_to<ReplicasRetired>,
                     caf::reacts_to<SnapshotTaken>, caf::reacts_to<ReplicaActivity>>;

/// Drives the replicas that a worker holds, one of each stage of its pipeline rank, through their
/// schedule. What to do next is decided by the `plans::WorkerProgram` of the training mode; this
/// actor has its components ask the device, the groups and the network to do it.
///   in   ControlMessage   from the coordinator: Start, Commit; in some training modes also Lease,
///        ColumnCommit, Combine, Dissolve; others are dropped
///   in   InputArrived     a neighbour's tensor; of another generation: dropped by the inbox
///   in   WorkDone         from the device, in the order of the work
///   in   ReductionDone    from a GroupIo
///   in   TransferDone     from a StageLinkIo
///   in   ShardWritten     from the ShardIo
///   in   RetireReplicas   from the Worker: starts nothing new, and ends when nothing runs
///   in   HeartbeatAtom    from the Worker: what it does goes to the listener
///   in   ClockOffset      from the Worker
///   in   TensorSent       from the data plane, while a step is profiled
///   in   ChunkArrived     weights of another replica of a stage
///   out  Ready, Reduced, Combined, Validated, ShardSaved, Timings to the coordinator; WorkerFault,
///        ReplicasRetired, ReplicaActivity and (from the ShardIo) SnapshotTaken to the listener
using Replica = caf::typed_actor<
    caf::reacts_to<net::ControlMessage>, caf::reacts_to<InputArrived>, caf::reacts_to<WorkDone>,
    caf::reacts_to<ReductionDone>, caf::reacts_to<ShardWritten>, caf::reacts_to<ClockOffset>,
    caf::reacts_to<TensorSent>, caf::reacts_to<ChunkArrived>, caf::reacts_to<RetireReplicas>,
    caf::reacts_to<HeartbeatAtom>, caf::reacts_to<TransferDone>>;

struct ReplicaConfig {
  plans::JobSpec job;
  plans::Plan plan;
  uint64_t first_step = 0;
  std::vector<PreparedReplica> replicas;  // By ascending stage.
  std::shared_ptr<const gpu::TokenData> data;
  std::shared_ptr<gpu::Device> device;
  ShardIo shards;
  std::map<plans::GroupId, GroupIo> groups;
  std::set<plans::GroupId> device_groups;  // Those that add up in the device's memory.
  /// By the stage in front: of the neighbouring stages whose devices pass on activations.
  std::map<int32_t, StageLinkIo> links;
  std::shared_ptr<net::DataPlane> plane;
  std::map<plans::WorkerId, std::string> addresses;  // Of the workers' data planes.
  std::shared_ptr<net::ControlLink> link;            // To the coordinator.
  net::EnvelopeHead head;
  std::vector<plans::WorkerId> keepers;  // Of each stage's snapshots.
  ReplicaListener listener;
  const plans::ModeList* modes = nullptr;  // Null: those of the product.
  FailPointHandle fail_point;              // Of tests; else null.
};

/// The components, and who carries out which of the program's commands. Owned by one actor; touched
/// only from its handlers.
struct ReplicaState {
  static inline const char* name = "replica";

  Replica::stateful_pointer<ReplicaState> self = nullptr;
  ReplicaConfig config;
  StageReplicas replicas;  // Empty once it has retired.
  std::unique_ptr<plans::WorkerProgram> program;
  plans::DropCounts drops;
  std::unique_ptr<Reports> reports;
  std::unique_ptr<DeviceWork> device;
  std::unique_ptr<TensorTraffic> traffic;
  std::unique_ptr<DeviceOperations> operations;
  std::unique_ptr<Reductions> reductions;
  std::unique_ptr<LinkTransfers> links;
  std::unique_ptr<StateCopies> copies;
  std::map<int32_t, std::unique_ptr<StageAverages>> averages;  // By stage; none: no mode's need.
  StepTrace trace;
  uint64_t activity_since_us = 0;  // What the program does began or ended then.
  bool retires = false;
  bool device_is_drained = false;  // Only while it retires.

  void start(ReplicaConfig new_config);
  void open_averages(const StageReplica& replica);
  uint64_t now_us() const;
  void on_control(const net::ControlMessage& message);
  void on_group(const GroupOrder& order, plans::ReplicaId id);
  void on_input(const InputArrived& arrived);
  void on_work_done(const WorkDone& done);
  void on_average_work(uint64_t number);
  void on_average_ended(const StageAverages::Ended& ended);
  void on_chunk(const ChunkArrived& arrived);
  void on_reduction_done(const ReductionDone& done);
  void on_transfer_done(const TransferDone& done);
  void on_retire(const RetireReplicas& order);
  void try_retire();
  void tell_activity();
  void fail(const absl::Status& why);

  /// Starts the commands in order.
  void apply(const plans::ProgramCommands& commands);
  /// The same, if the program took the event.
  void apply(const plans::ProgramOutcome& outcome);
  void expect_operations(uint64_t step);
  void begin_operation(const plans::CollectiveKey& key);
  Outgoing outgoing(const StageReplica& from, net::schema::TensorKind kind,
                    const plans::RunAction& run);
  void watch(Outgoing& output, const std::string& kind, const plans::RunAction& run);

  void carry_out(const plans::RunAction& command);
  void carry_out(const plans::RunNorm& command);
  void carry_out(const plans::RunUpdate& command);
  void carry_out(const plans::RunValidation& command);
  void carry_out(const plans::SendReady& command);
  void carry_out(const plans::RunReduction& command);
  void carry_out(const plans::SendReduced& command);
  void carry_out(const plans::SaveState& command);
  void carry_out(const plans::KeepSnapshot& command);
  void carry_out(const plans::SendValidated& command);
  void carry_out(const plans::BeginRound& command);
  void carry_out(const plans::RunAverage& command);
};

Replica::behavior_type replica(Replica::stateful_pointer<ReplicaState> self, ReplicaConfig config);

}  // namespace skein::actors
