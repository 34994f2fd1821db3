#pragma once

#include <cstdint>
#include <memory>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "actors/replica/command_runner.hpp"
#include "actors/replica/replica_config.hpp"
#include "actors/replica/replica_messages.hpp"
#include "actors/replica/replica_parts.hpp"
#include "net/codec/envelope.hpp"
#include "plans/base/outcome.hpp"
#include "plans/worker/worker_program.hpp"

namespace skein::actors {

/// Drives the replicas that a worker holds, one of each stage of its pipeline rank, through their
/// schedule. What to do next is decided by the `plans::WorkerProgram` of the training mode; a
/// CommandRunner has the components do it, and this actor tells both what has happened.
///   in   Envelope         from the coordinator: Start, Commit; in some training modes also Claim,
///        CommitUpdate, Average, AbortGroup, or TokenOrder; others are dropped
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
///   out  EarlySignal, TokenReport, Ready, Reduced, Averaged, Validated, ShardSaved, ShardSent,
///   Timings   to the
///        coordinator
///   out  WorkerFault, ReplicasRetired, ReplicaActivity and (from the ShardIo) SnapshotTaken   to
///        the listener
using Replica = caf::typed_actor<
    caf::reacts_to<net::Envelope>, caf::reacts_to<InputArrived>, caf::reacts_to<WorkDone>,
    caf::reacts_to<ReductionDone>, caf::reacts_to<ShardWritten>, caf::reacts_to<ClockOffset>,
    caf::reacts_to<TensorSent>, caf::reacts_to<ChunkArrived>, caf::reacts_to<RetireReplicas>,
    caf::reacts_to<HeartbeatAtom>, caf::reacts_to<TransferDone>>;

struct ReplicaState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "replica";

  Replica::stateful_pointer<ReplicaState> self = nullptr;
  ReplicaConfig config;
  std::unique_ptr<plans::WorkerProgram> program;
  plans::DropCounts drops;
  ReplicaParts parts;  // Without replicas once it has retired.
  std::unique_ptr<CommandRunner> commands;
  uint64_t activity_since_us = 0;  // What the program does began or ended then.
  bool retires = false;
  bool device_is_drained = false;  // Only while it retires.

  void start(ReplicaConfig new_config);
  ReplicaHooks make_hooks();
  uint64_t now_us() const;
  void take_turn(uint64_t position, bool has_pass) const;
  void on_message(const net::Start& start);
  void on_message(const plans::CommitOrder& order);
  void on_message(const net::Claim& claim);
  void on_message(const plans::UpdateOrder& order);
  void on_message(const net::Average& average);
  void on_message(const net::AbortGroup& abort);
  void on_message(const plans::TokenOrder& order);
  /// Any other message is for somebody else.
  template <class Other>
  void on_message(const Other&) {
    drops.add(plans::DropReason::kUnexpected);
  }
  void on_input(const InputArrived& arrived);
  void on_work_done(const WorkDone& done);
  void on_average_work(uint64_t number);
  void on_average_ended(const StageAverages::Ended& ended);
  void on_chunk(const ChunkArrived& arrived);
  void on_reduction_done(const ReductionDone& done);
  void on_transfer_done(const TransferDone& done);
  void on_shard_written(const ShardWritten& written);
  void on_retire(const RetireReplicas& order);
  void try_retire();
  void tell_activity();
  void report(const net::ControlBody& body) const;
  void fail(const absl::Status& why);

  /// Starts what the program commands, in order.
  void apply(const plans::ProgramCommands& all);
  /// The same, if the program took the event.
  void apply(const plans::ProgramOutcome& outcome);
};

Replica::behavior_type replica(Replica::stateful_pointer<ReplicaState> self, ReplicaConfig config);

}  // namespace skein::actors
