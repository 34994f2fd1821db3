#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "actors/prepare_io.hpp"
#include "actors/rank.hpp"
#include "actors/worker_process.hpp"
#include "net/data_plane.hpp"

namespace skein::actors {

/// The link to the coordinator is there.
struct LinkOpened {
  std::shared_ptr<net::ControlLink> link;
};
/// ... or has closed, or could not be made.
struct LinkClosed {
  absl::Status why;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::LinkOpened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::LinkClosed)

namespace skein::actors {

/// Joins the job, tells the coordinator that it lives, and hosts the replicas it is assigned.
///   in   LinkOpened, ControlMessage, LinkClosed   from the link to the coordinator
///   in   PreparedReplicas, ProfileMeasured   from the PrepareIo
///   in   WorkerFault        from a replica, a group or the data plane: told to the coordinator
///   in   HeartbeatAtom      from itself, every elastic.heartbeat_interval_seconds
///   in   EndAtom            from itself: a fault was not explained by a lost neighbour
///   out  Join, Profiled, Prepared, Rendezvous, Heartbeat, Failed to the coordinator
using Worker = caf::typed_actor<caf::reacts_to<LinkOpened>, caf::reacts_to<net::ControlMessage>,
                                caf::reacts_to<LinkClosed>, caf::reacts_to<PreparedReplicas>,
                                caf::reacts_to<ProfileMeasured>, caf::reacts_to<WorkerFault>,
                                caf::reacts_to<HeartbeatAtom>, caf::reacts_to<EndAtom>>;

struct WorkerConfig {
  WorkerOptions options;
  std::shared_ptr<net::DataPlane> plane;
  std::shared_ptr<net::RendezvousBoard> board;
  PrepareIo prepare;
  /// Called once with how the worker ended.
  std::function<void(absl::Status)> on_end;
};

struct WorkerState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "worker";

  Worker::stateful_pointer<WorkerState> self = nullptr;
  WorkerConfig config;
  std::shared_ptr<net::ControlLink> link;
  net::EnvelopeHead head;
  plans::JobSpec job;
  std::string run_folder;
  plans::Plan plan;
  uint64_t first_step = 0;
  std::map<plans::WorkerId, std::string> addresses;
  std::shared_ptr<gpu::Device> device;
  std::shared_ptr<net::LinkProbe> links;  // From the first request to measure on.
  bool profiling = false;
  std::optional<Rank> rank_actor;  // Of the plan in force; none if it gives us nothing to do.
  uint64_t steps_done = 0;
  absl::Status fault;  // The first one; told to the coordinator a little later.
  bool ended = false;

  void on_link(const LinkOpened& opened);
  void on_control(const net::ControlMessage& message);
  void on_joined(const net::ControlMessage& message);
  void on_assign(net::schema::Assign::Reader assign);
  void on_prepared(const PreparedReplicas& prepared);
  void on_profile_request(net::schema::ProfileRequest::Reader request);
  void on_measured(const ProfileMeasured& result);
  void on_fault(const WorkerFault& fault);
  void on_heartbeat();
  void on_heartbeat_ack(net::schema::HeartbeatAck::Reader ack);
  void spawn_rank(const PreparedReplicas& prepared);
  void tell_failed(const absl::Status& why);
  void end(const absl::Status& status);
  uint64_t now_us() const;
};

Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, WorkerConfig config);

}  // namespace skein::actors
