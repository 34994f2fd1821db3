#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>

#include "absl/status/status.h"
#include "actors/coordinator/run_observer.hpp"
#include "actors/coordinator/start_point.hpp"
#include "actors/worker/layer_state.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "gpu/device.hpp"
#include "gpu/device_pool.hpp"
#include "net/control/control_link.hpp"
#include "net/data/link_probe.hpp"
#include "net/data/tensor_inbox.hpp"
#include "plans/base/outcome.hpp"
#include "plans/collectives/collective_order.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/planner_questions.hpp"

namespace skein::actors {

// What actors of one process tell each other. None of it leaves the process: between processes
// everything is a `net::Envelope`.

using TickAtom = caf::atom_constant<caf::atom("tick")>;
using HeartbeatAtom = caf::atom_constant<caf::atom("heartbeat")>;
using WakeAtom = caf::atom_constant<caf::atom("wake")>;
using EndAtom = caf::atom_constant<caf::atom("end")>;

/// A peer has connected and said hello.
struct PeerOpened {
  plans::PeerNumber peer = 0;
  std::shared_ptr<net::ControlLink> link;
  net::schema::Role role = net::schema::Role::WORKER;
};
struct PeerMessage {
  plans::PeerNumber peer = 0;
  net::Envelope message;
};
struct PeerClosed {
  plans::PeerNumber peer = 0;
  absl::Status why;
};
/// Something connected that does not speak the protocol, and was turned away.
struct PeerRejected {
  std::string address;
  std::string reason;
};

/// The process that listened there for tensors is dead.
struct ListenerGone {
  std::string address;
};

struct JournalRequest {
  plans::CommitRecord record;
};
struct CommitJournaled {
  uint64_t step = 0;
  absl::Status status;
  bool is_retried = false;  // It is not written yet, for that reason; it is tried again.
};

/// Whether a later life of the coordinator has begun.
struct LaterLifeRequest {};
struct LaterLifeBegun {
  absl::Status status;  // Which says so.
};

struct CheckpointRequest {
  uint64_t generation = 0;  // In which its shards were written.
  gpu::TrainerState state;
  std::vector<gpu::SavedFile> files;
};
struct CheckpointCompleted {
  uint64_t steps_done = 0;
  std::string path;
  uint64_t bytes = 0;
  absl::Status status;
};

/// Read all of the newest checkpoint in `load_path`, and of older ones while it is damaged; and the
/// training data, unless that is known.
struct StartRequest {
  std::string load_path;   // Empty: the run goes on from initial weights.
  std::string run;         // Whose they must be; empty: any run's.
  uint64_t steps_max = 0;  // Newer ones are not looked at: they are of a past that was taken back.
  std::optional<TrainingData> data;
};
struct StartFound {
  absl::Status status;
  VerifiedStart start;
};

/// Make a checkpoint of what workers have left.
struct LeftStateRequest {
  plans::SeekLeftState sought;
  int64_t positions = 0;    // As in `TrainerState`.
  std::string from_digest;  // As there.
};
/// What has come of it.
struct LeftStateFound {
  absl::Status status;        // Why none can be made for now; not OK: `is_retried`.
  gpu::AdoptedState adopted;  // Without a path: there was nothing to make one of.
  bool is_retried = false;    // There is newer state, and it is tried again.
};

/// Layers of a checkpoint are to be sent to a worker that does not see it.
struct LayersRequest {
  plans::SendLayers order;
  std::string load_path;
  std::string address;  // The worker's data plane.
};
/// The layers of a `LayersRequest` cannot be read, for that reason.
struct LayersUnreadable {
  uint64_t generation = 0;
  plans::WorkerId worker;
  absl::Status why;
};
/// A layer is on its way to the worker, or never will be.
struct LayerLeft {
  uint64_t generation = 0;
  plans::WorkerId worker;
};

struct StopRequest {
  std::string reason;
};
struct AbortRequest {
  absl::Status why;
};
/// In experiments: a worker's device gets another emulated speed, or it loses a link.
struct EmulateRequest {
  plans::WorkerId worker;
  double speed = 0;              // 0: as it is.
  plans::WorkerId drop_link_to;  // 0: none.
  double drop_seconds = 0;
};

/// A piece of work has ended on the device; `token` is the submitter's.
struct WorkDone {
  uint64_t token = 0;
  absl::Status status;
  std::chrono::steady_clock::time_point ended;  // On the device: this news may come much later.
  /// When a device that other jobs use as well has begun with it; none: no other job does.
  std::optional<std::chrono::steady_clock::time_point> begun = {};
};

/// Measure the job's layers on a device and the links to other workers.
struct ProfileWork {
  plans::JobSpec job;
  std::shared_ptr<gpu::Device> device;
  std::vector<int64_t> rows;
  std::vector<plans::WorkerId> peers;
  std::shared_ptr<net::LinkProbe> links;
};
struct ProfileMeasured {
  absl::Status status;
  plans::MeasuredWorker measured;
};

/// A whole tensor has arrived for a replica.
struct InputArrived {
  net::TensorKey key;
  net::TensorHandle tensor;
};

/// Connect the members of a group.
struct FormGroup {
  uint64_t generation = 0;
};
struct GroupFormed {
  uint64_t generation = 0;
  plans::GroupId group;
  absl::Status status;
  bool is_on_device = false;                // It adds up what lies in the device's memory.
  std::shared_ptr<gpu::DevicePool> memory;  // A link's, for its tensors; null: a group's.
};

/// Add up the values over the members of a group. They stay alive until `ReductionDone`.
struct ReductionRequest {
  uint64_t step = 0;
  int32_t bucket = 0;
  std::span<float> values;
};
struct ReductionDone {
  plans::GroupId group;
  uint64_t step = 0;
  int32_t bucket = 0;
  absl::Status status;
};

/// Pass on rows in the device's memory to another device, or take them from it. They stay alive
/// until `TransferDone`.
struct TransferRequest {
  plans::CollectiveKey key;  // The transfer's place in the order of the device's operations.
  gpu::Numbers values;
  int64_t count = 0;
  plans::WorkerId peer;
  bool is_sent = false;
};
struct TransferDone {
  plans::CollectiveKey key;
  absl::Status status;
};

/// A copy of a stage's state on its way to disk.
struct ShardRequest {
  uint64_t steps_done = 0;
  int32_t stage = 0;
  plans::LayerRange layers = {};
  std::vector<plans::ParameterSpec> parameters;
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<float>> moments_first;
  std::vector<std::vector<float>> moments_second;
};
struct ShardWritten {
  uint64_t steps_done = 0;
  int32_t stage = 0;
  absl::StatusOr<std::vector<gpu::SavedFile>> files;
  bool is_sent = false;  // There are none, as the coordinator is to write them.
};
/// The data plane holds nothing any more of a shard of the stage that was sent.
struct ShardGone {
  int32_t stage = 0;
};

/// A copy of a stage's state on its way to the memory of a worker: another one, or under local
/// updates its own if no other can keep it.
struct SnapshotRequest {
  uint64_t generation = 0;
  int32_t stage = 0;
  HeldState state;                          // Copies that are not sealed yet.
  std::optional<std::string> peer_address;  // The snapshot peer's data plane; none: kept here.
  std::shared_ptr<const void> under_way;    // Lives until the last copy is sent or given up.
};
struct SnapshotTaken {
  int32_t stage = 0;
  HeldState state;
};
/// The state of a layer has come from another worker.
struct StateArrived {
  net::TensorKey key;
  net::TensorHandle tensor;
};

/// What has come of a `plans::ReceiveShard`: a layer, or the end.
struct ShardLayerArrived {
  uint64_t generation = 0;
  int32_t stage = 0;
  uint64_t steps_done = 0;
};
struct ShardReceived {
  plans::ReceiveShard shard;
  absl::StatusOr<std::vector<gpu::SavedFile>> files;
};

/// Stop: first, if the commit of step `committed_steps` - 1 is what you wait for, apply it.
struct RetireReplicas {
  uint64_t committed_steps = 0;
  double gradient_norm = 0;
  uint64_t committed_generation = 0;  // In which the last of them was committed.
};
/// What a rank does, for the heartbeat.
struct ReplicaActivity {
  std::string action;
  uint64_t action_us = 0;
  bool works = false;
  bool awaits_device = false;
  plans::DropCounts dropped;  // Since the one before.
};

/// Coordinator's clock minus ours.
struct ClockOffset {
  int64_t offset_us = 0;
};
/// A replica, a group or a data connection cannot go on; or there is no memory here for a tensor
/// that comes.
struct WorkerFault {
  absl::Status why;
  std::string peer_address;     // The other end of a data connection that broke; else empty.
  bool is_unreachable = false;  // It was tried for about a lease.
  /// There is no memory for a tensor of this generation; 0: there is.
  uint64_t no_memory_generation = 0;
};

}  // namespace skein::actors

// In-process messages need no serialisation.
#define SKEIN_IN_PROCESS_MESSAGE(type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)
SKEIN_IN_PROCESS_MESSAGE(skein::net::Envelope)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::RequestPlan)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::PlanReady)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::AssignPlan)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::Plan)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::RewindJournal)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::ReportProfiles)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ProfileWork)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ProfileMeasured)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::PeerOpened)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::PeerMessage)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::PeerClosed)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::PeerRejected)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ListenerGone)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::JournalRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::CommitJournaled)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::LaterLifeRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::LaterLifeBegun)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::CheckpointRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::CheckpointCompleted)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::StartRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::StartFound)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::LeftStateRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::LeftStateFound)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::StopRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::AbortRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::EmulateRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::WorkDone)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::InputArrived)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::FormGroup)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::GroupFormed)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::SnapshotRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::SnapshotTaken)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::StateArrived)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::RetireReplicas)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ReplicaActivity)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ReductionRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ReductionDone)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::TransferRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::TransferDone)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ShardRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ShardWritten)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ShardGone)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::ReceiveShard)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::AbandonShard)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::DeletePartials)
SKEIN_IN_PROCESS_MESSAGE(skein::plans::EndTransfers)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ShardLayerArrived)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ShardReceived)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::LayersRequest)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::LayersUnreadable)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::LayerLeft)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ClockOffset)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::WorkerFault)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::StepReport)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::ValidationReport)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::CheckpointReport)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::TimingsReport)
SKEIN_IN_PROCESS_MESSAGE(skein::actors::EventReport)
