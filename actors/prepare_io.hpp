#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/model/stage_model.hpp"
#include "net/gradient_group.hpp"
#include "plans/plan.hpp"

namespace skein::actors {

/// What a worker is assigned, with what preparing it takes.
struct PrepareRequest {
  plans::WorkerId worker;
  plans::JobSpec job;
  plans::Plan plan;
  std::string load_path;
  uint64_t data_bytes = 0;
  uint64_t data_digest = 0;
  std::string bind_host;  // For collectives.
  std::shared_ptr<net::RendezvousBoard> board;
  std::shared_ptr<gpu::Device> device;
};

/// One replica, allocated, loaded and connected to its groups.
struct PreparedReplica {
  plans::ReplicaId id;
  std::shared_ptr<gpu::StageModel> model;
  std::map<plans::GroupId, std::shared_ptr<net::GradientGroup>> groups;  // Of more than one member.
};
struct PreparedReplicas {
  absl::Status status;
  std::shared_ptr<const gpu::TokenData> data;  // Null for a device that only sleeps.
  std::vector<PreparedReplica> replicas;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::PrepareRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::PreparedReplicas)

namespace skein::actors {

/// Who takes the prepared replicas, and what was measured.
using PrepareListener =
    caf::typed_actor<caf::reacts_to<PreparedReplicas>, caf::reacts_to<ProfileMeasured>>;

/// Opens the data, builds and loads models, forms groups and measures; all of it blocks: spawn it
/// detached.
///   in   PrepareRequest     one assignment
///   in   ProfileWork        while nothing trains
///   out  PreparedReplicas, ProfileMeasured   to the listener, once per request
using PrepareIo = caf::typed_actor<caf::reacts_to<PrepareRequest, PrepareListener>,
                                   caf::reacts_to<ProfileWork, PrepareListener>>;

struct PrepareIoState {
  static inline const char* name = "prepare-io";
};

PrepareIo::behavior_type prepare_io(PrepareIo::stateful_pointer<PrepareIoState> self);

}  // namespace skein::actors
