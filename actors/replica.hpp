#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/device_queue.hpp"
#include "actors/group_io.hpp"
#include "actors/messages.hpp"
#include "actors/prepare_io.hpp"
#include "actors/shard_io.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/model/stage_model.hpp"
#include "gpu/staging_pool.hpp"
#include "net/data_plane.hpp"
#include "net/envelope.hpp"
#include "plans/replica_program.hpp"

namespace skein::actors {

/// Who hears that a replica cannot go on.
using FaultListener = caf::typed_actor<caf::reacts_to<WorkerFault>>;

/// A tensor has been written to its socket; for the trace.
struct TensorSent {
  std::string slice;
  int32_t microbatch = 0;
  uint64_t start_us = 0;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::TensorSent)

namespace skein::actors {

/// Drives one replica of a stage through its schedule. What to do next is decided by
/// `plans::ReplicaProgram`; this actor asks the device, the groups and the network to do it.
///   in   ControlMessage   Start, GroupStart, Commit from the coordinator; others are dropped
///   in   InputArrived     a neighbour's tensor; of another generation: dropped by the inbox
///   in   WorkDone         from the DeviceQueue
///   in   ReductionDone    from a GroupIo
///   in   ShardWritten     from the ShardIo
///   in   ClockOffset      from the Worker
///   in   TensorSent       from the data plane, while a step is profiled
///   out  Ready, Reduced, Validated, ShardSaved, Timings to the coordinator; WorkerFault
using Replica = caf::typed_actor<caf::reacts_to<net::ControlMessage>, caf::reacts_to<InputArrived>,
                                 caf::reacts_to<WorkDone>, caf::reacts_to<ReductionDone>,
                                 caf::reacts_to<ShardWritten>, caf::reacts_to<ClockOffset>,
                                 caf::reacts_to<TensorSent>>;

struct ReplicaConfig {
  plans::JobSpec job;
  plans::Plan plan;
  uint64_t first_step = 0;
  PreparedReplica parts;
  std::shared_ptr<const gpu::TokenData> data;
  DeviceQueue device;
  ShardIo shards;
  std::map<plans::GroupId, GroupIo> groups;
  std::shared_ptr<net::DataPlane> plane;
  std::map<plans::WorkerId, std::string> addresses;  // Of the workers' data planes.
  std::shared_ptr<net::ControlLink> link;            // To the coordinator.
  net::EnvelopeHead head;
  FaultListener worker;
};

struct ReplicaState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "replica";

  Replica::stateful_pointer<ReplicaState> self = nullptr;
  ReplicaConfig config;
  std::optional<plans::ReplicaProgram> program;
  int32_t stage = 0;
  plans::RowRange rows;
  int64_t row_floats = 0;  // T * C
  std::vector<plans::Route> routes_forward;
  std::vector<plans::Route> routes_backward;
  std::shared_ptr<gpu::StagingPool> staging;
  std::map<plans::InputKey, net::TensorHandle> inputs;

  // The program's work that the device has now.
  plans::ReplicaCommand current;
  gpu::StagingPool::Handle output;
  uint64_t work_start_us = 0;
  std::shared_ptr<double> norm_squared = std::make_shared<double>(0);

  // Since the last ready signal.
  uint64_t step_start_us = 0;
  uint64_t busy_us = 0;
  uint64_t reduce_start_us = 0;
  uint64_t ready_us = 0;
  uint32_t stashes = 0;
  uint32_t stash_peak = 0;

  // The trace.
  int64_t clock_offset_us = 0;
  bool profiles = false;
  std::vector<SliceReport> slices;

  void start(ReplicaConfig new_config);
  uint64_t now_us() const;
  void on_control(const net::ControlMessage& message);
  void on_input(const InputArrived& arrived);
  void on_work_done(const WorkDone& done);
  void on_reduction_done(const ReductionDone& done);
  void on_shard_written(const ShardWritten& written);
  void fail(const absl::Status& why);

  /// Starts the commands in order.
  void apply(const plans::ReplicaCommands& commands);
  void carry_out(const plans::RunAction& command);
  void carry_out(const plans::RunNorm& command);
  void carry_out(const plans::RunUpdate& command);
  void carry_out(const plans::RunValidation& command);
  void carry_out(const plans::SendReady& command);
  void carry_out(const plans::RunReduction& command);
  void carry_out(const plans::SendReduced& command);
  void carry_out(const plans::SaveState& command);
  void carry_out(const plans::SendValidated& command);

  // Device work, in replica_work.cpp.
  gpu::Work forward_work(const plans::RunAction& run);
  gpu::Work backward_work(const plans::RunAction& run);
  gpu::Work validation_work(const plans::RunValidation& run);
  gpu::Work update_work(const plans::RunUpdate& run);
  net::TensorHandle take_input(plans::InputKind kind, uint64_t step, int32_t microbatch);
  void submit(const plans::ReplicaCommand& command, gpu::Work work);
  void send_output(net::schema::TensorKind kind, uint64_t step, int32_t microbatch);

  // Reports, in replica_reports.cpp.
  void finish_action(const plans::RunAction& run);
  void record(const std::string& slice, uint8_t track, uint64_t start_us, uint64_t end_us,
              int32_t microbatch);
  void send_timings(uint64_t step);
  /// An owner of the memory of `part` that reports the end of its transfer.
  std::shared_ptr<const void> traced(const net::DataPlane::Rows& part,
                                     gpu::StagingPool::Handle memory);
  template <class Fill>
  void report(Fill fill) {
    config.link->send(net::make_envelope(config.head, fill));
  }
};

/// Copies the whole state of `model` into `copy`, whose `parameters` are set.
absl::Status snapshot(const gpu::StageModel& model, ShardRequest& copy);

Replica::behavior_type replica(Replica::stateful_pointer<ReplicaState> self, ReplicaConfig config);

}  // namespace skein::actors
