#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/collectives/stage_link.hpp"
#include "actors/fail_point.hpp"
#include "actors/messages.hpp"
#include "actors/worker/emergency_save.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/device_pool.hpp"
#include "gpu/model/stage_model.hpp"
#include "net/data/data_plane.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::actors {

/// What a worker is assigned, with what preparing it takes.
struct PrepareRequest {
  plans::WorkerId worker;
  plans::JobSpec job;
  plans::PlanPart plan;
  bool reduces_gradients = true;  // As its training mode says.
  int32_t passes_in_flight = 1;   // The same.
  /// Stages in front of links that may pass on tensors from device to device.
  std::vector<int32_t> linked;
  uint64_t first_step = 0;
  bool from_checkpoint = false;  // All state is read there, else it is in `held`.
  std::string load_path;         // Empty: initial weights.
  std::string run_folder;        // Empty: not known.
  std::string run;               // The run's id.
  std::vector<HeldState> held;
  /// What takes the device's memory, whether its state counts for this plan or not.
  std::vector<HeldState> on_device;
  uint64_t data_bytes = 0;
  uint64_t data_digest = 0;
  std::shared_ptr<const gpu::TokenData> data;  // If it is open already.
  std::shared_ptr<gpu::Device> device;
};

/// One replica, allocated and loaded.
struct PreparedReplica {
  plans::ReplicaId id;
  std::shared_ptr<gpu::StageModel> model;
  gpu::StageModelOptions options;      // The model's.
  std::vector<plans::GroupId> groups;  // Those of more than one member that it belongs to.
};
struct PreparedReplicas {
  uint64_t generation = 0;
  absl::Status status;                    // Unavailable: state that was held is damaged or missing.
  bool is_checkpoint_unreadable = false;  // Then `status` says why.
  bool is_checkpoint_unseen = false;      // Nothing is wrong with it, it is only not here.
  std::shared_ptr<const gpu::TokenData> data;  // Null for a device that only sleeps.
  std::vector<PreparedReplica> replicas;
  std::map<int32_t, LinkTensors> links;  // Those of `PrepareRequest::linked`.
  /// By the stages in front of the links. None where the device has no more, and no model that the
  /// plan does not need: by way of the hosts a link takes none.
  std::map<int32_t, std::shared_ptr<gpu::DevicePool>> link_memory;
  /// The device had no memory beside the models that are held, for others or for links: these are
  /// copies of their state on the host, so that the models can be let go and the plan prepared
  /// again. Only if `status` is ResourceExhausted.
  std::vector<HeldState> moved;
};

/// Layers whose state other workers need.
struct SendStateRequest {
  uint64_t generation = 0;
  uint64_t step = 0;
  plans::ModelSpec model;
  std::vector<std::pair<int64_t, std::string>> layers;  // And the address of who needs each.
  std::vector<HeldState> held;
  std::shared_ptr<net::DataPlane> plane;
  FailPointHandle fail_point;  // Set by tests; else null.
};
struct StateSent {
  uint64_t generation = 0;
  absl::Status status;  // Unavailable: state that was held is damaged or missing.
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::PrepareRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::PreparedReplicas)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::SendStateRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::StateSent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::EmergencyRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::EmergencyComing)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::EmergencySaved)

namespace skein::actors {

/// Who takes the prepared replicas, and what was measured.
using PrepareListener =
    caf::typed_actor<caf::reacts_to<PreparedReplicas>, caf::reacts_to<StateSent>,
                     caf::reacts_to<ProfileMeasured>, caf::reacts_to<EmergencySaved>>;

/// Opens the data, builds and loads models, sends state and measures; all of it takes long or
/// blocks: spawn it detached. It waits for no other worker but to measure links.
///   in   PrepareRequest     one assignment, when all state is here
///   in   SendStateRequest   state for other workers
///   in   ProfileWork
///   in   EmergencyRequest   the coordinator is gone: what is held goes to the run folder
///   in   EmergencyComing    the coordinator is gone and the device still works: says beside the
///        checkpoints that state follows; no answer
///   out  PreparedReplicas, StateSent, ProfileMeasured, EmergencySaved   to the listener, once per
///        request
using PrepareIo = caf::typed_actor<
    caf::reacts_to<PrepareRequest, PrepareListener>,
    caf::reacts_to<SendStateRequest, PrepareListener>, caf::reacts_to<ProfileWork, PrepareListener>,
    caf::reacts_to<EmergencyRequest, PrepareListener>, caf::reacts_to<EmergencyComing>>;

struct PrepareIoState {
  static inline const char* name = "prepare-io";
};

PrepareIo::behavior_type prepare_io(PrepareIo::stateful_pointer<PrepareIoState> self);

}  // namespace skein::actors
