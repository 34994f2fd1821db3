#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/collectives/stage_link_io.hpp"
#include "actors/messages.hpp"
#include "actors/replica/rank.hpp"
#include "actors/worker/layer_state.hpp"
#include "actors/worker/prepare_io.hpp"
#include "actors/worker/worker_process.hpp"
#include "net/data/data_plane.hpp"
#include "net/reduce/gradient_group.hpp"

namespace skein::actors {

/// The `attempt`-th link to the coordinator is there.
struct LinkOpened {
  uint64_t attempt = 0;
  std::shared_ptr<net::ControlLink> link;
};
/// ... or has closed, or could not be made.
struct LinkClosed {
  uint64_t attempt = 0;
  absl::Status why;
};
/// The state must move away: we have to go.
struct LeaveRequest {
  std::string reason;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::LinkOpened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::LinkClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::LeaveRequest)

namespace skein::actors {

/// Joins the job, tells the coordinator that it lives, and hosts the replicas it is assigned, under
/// one plan after the other. It keeps the state of the plan before until the next one has started,
/// and snapshots of other workers' stages.
///
///   1 idle:       no plan, or one that gives us nothing to do
///   2 halting:    the rank of the plan before retires; then Halted
///   3 fetching:   a plan is assigned; layers come from other workers, and go to them
///   4 preparing:  the PrepareIo builds and loads models
///   5 forming:    groups are formed; then Prepared
///   6 hosting:    a rank runs, or waits for Start
///
///   in   LinkOpened, ControlMessage, LinkClosed   from the link to the coordinator; a link that is
///        lost is made anew, and the plan in force goes on until the coordinator halts it
///   in   PreparedReplicas, StateSent, ProfileMeasured   from the PrepareIo
///   in   GroupFormed        from a GroupIo
///   in   RankRetired, RankActivity, SnapshotTaken, WorkerFault   from the rank, or (the last one)
///        from the data plane
///   in   StateArrived       from the data plane: a layer, for us or to be kept
///   in   LeaveRequest       SIGTERM or a notice: told to the coordinator
///   in   HeartbeatAtom      from itself, every elastic.heartbeat_interval_seconds
///   out  Join, Profiled, Halted, Prepared, SnapshotKept, Trouble, Leave, Heartbeat, Failed to the
///        coordinator
using Worker = caf::typed_actor<
    caf::reacts_to<LinkOpened>, caf::reacts_to<net::ControlMessage>, caf::reacts_to<LinkClosed>,
    caf::reacts_to<PreparedReplicas>, caf::reacts_to<StateSent>, caf::reacts_to<ProfileMeasured>,
    caf::reacts_to<GroupFormed>, caf::reacts_to<RankRetired>, caf::reacts_to<RankActivity>,
    caf::reacts_to<SnapshotTaken>, caf::reacts_to<StateArrived>, caf::reacts_to<WorkerFault>,
    caf::reacts_to<LeaveRequest>, caf::reacts_to<HeartbeatAtom>>;

/// A group and how to make it fail at once, from any thread.
struct GroupParts {
  GroupIo io;
  std::function<void()> abort;
};

/// As a group.
struct StageLinkParts {
  StageLinkIo io;
  std::function<void()> abort;
};

/// A group that is to be made.
struct GroupRequest {
  net::GradientGroup::Options options;
  /// All groups of the plan with more than one member, and those for activations.
  std::map<plans::GroupId, FormationRound::Wanted> wanted;
  std::set<plans::WorkerId> workers;  // Of the plan.
  plans::WorkerId self;
  uint64_t generation = 0;
  std::string backend;  // comm.backend
  std::shared_ptr<gpu::Device> device;
};

/// How a worker gets what depends on the machine it runs on.
struct WorkerParts {
  /// An error ends the worker.
  std::function<absl::StatusOr<std::shared_ptr<gpu::Device>>(const plans::DeviceSpec&)> make_device;
  std::function<absl::StatusOr<GroupParts>(plans::GroupId, const GroupRequest&)> make_group;
  /// Null: devices pass on nothing without the hosts. None: this worker's does not.
  std::function<std::optional<StageLinkParts>(plans::GroupId, const GroupRequest&)> make_stage_link;
  std::function<ShardIo(ShardIoConfig)> make_shard_io;
};

struct WorkerConfig {
  WorkerOptions options;
  WorkerParts parts;
  std::shared_ptr<net::DataPlane> plane;
  std::shared_ptr<net::RendezvousBoard> board;
  PrepareIo prepare;
  /// Connects to the coordinator, trying for so many seconds; LinkOpened or LinkClosed follows.
  std::function<void(uint64_t attempt, double seconds)> connect;
  /// Called once with how the worker ended.
  std::function<void(absl::Status)> on_end;
};

struct WorkerState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "worker";

  Worker::stateful_pointer<WorkerState> self = nullptr;
  WorkerConfig config;

  // The coordinator.
  uint64_t attempt = 0;
  std::shared_ptr<net::ControlLink> link;  // Null while there is none.
  net::EnvelopeHead head;                  // Its generation is the newest that we have seen.
  uint64_t last_ack_us = 0;
  uint64_t joined_us = 0;             // On this link; 0: not yet.
  bool beats = false;                 // A HeartbeatAtom is on its way.
  std::optional<std::string> leaves;  // The reason.
  bool ended = false;

  // The job.
  plans::JobSpec job;
  std::string run_folder;
  std::shared_ptr<gpu::Device> device;
  std::shared_ptr<const gpu::TokenData> data;
  std::shared_ptr<net::LinkProbe> links;  // From the first request to measure on.
  bool profiling = false;
  uint64_t steps_done = 0;
  RankActivity activity;

  // The plan.
  plans::Plan plan;  // The newest one that was assigned.
  std::map<plans::WorkerId, std::string> addresses;
  std::vector<plans::WorkerId> keepers;  // Of each stage's snapshots.
  uint64_t first_step = 0;
  uint64_t state_generation = 0;          // In which the step before that was committed.
  std::optional<PrepareRequest> request;  // Of the assignment, until it is prepared.
  std::set<int64_t> awaited_layers;
  std::vector<PreparedReplica> prepared;
  std::map<plans::GroupId, GroupParts> groups;
  std::set<plans::GroupId> forming;
  std::set<plans::GroupId> device_groups;  // Of those that are formed.
  std::map<plans::GroupId, StageLinkParts> stage_links;
  std::optional<Rank> rank_actor;  // Of the plan; none if it gives us nothing to do.
  bool retiring = false;           // The rank of the plan before has not stopped yet.

  // State that we could give.
  std::vector<HeldState> held;
  std::map<std::pair<int32_t, uint64_t>, HeldState> arriving;  // Snapshots, by stage and step.

  void connect(double seconds);
  void on_link(const LinkOpened& opened);
  void on_link_closed(const LinkClosed& closed);
  void on_control(const net::ControlMessage& message);
  void on_joined(const net::ControlMessage& message);
  void on_leave(const LeaveRequest& leave);
  void on_heartbeat();
  void on_heartbeat_ack(net::schema::HeartbeatAck::Reader ack);
  void on_profile_request(net::schema::ProfileRequest::Reader request);
  void on_measured(const ProfileMeasured& result);
  void on_fault(const WorkerFault& fault);
  void tell_failed(const absl::Status& why);
  void tell_trouble(const absl::Status& why, plans::WorkerId peer = {});
  void end(const absl::Status& status);
  uint64_t now_us() const;
  plans::WorkerId id() const { return plans::WorkerId{head.sender}; }
  template <class Fill>
  void tell(Fill fill) {
    if (link) link->send(net::make_envelope(head, fill));
  }

  // From one plan to the next, in worker_plans.cpp.
  void on_halt(const net::ControlMessage& message);
  void on_retired(const RankRetired& retired);
  void drop_damaged();
  void tell_halted();
  void on_assign(net::schema::Assign::Reader assign);
  void send_layers(net::schema::Assign::Reader assign);
  void fetch_layers(net::schema::Assign::Reader assign);
  void keep_snapshots();
  void open_stream(net::schema::TensorKind kind, int64_t layer, uint32_t tensors_max);
  void on_state(const StateArrived& arrived);
  void on_snapshot_layer(const StateArrived& arrived);
  void on_snapshot(const SnapshotTaken& taken);
  void try_prepare();
  void on_prepared(const PreparedReplicas& result);
  GroupRequest group_request(const net::GradientGroup::Options& options) const;
  void form_groups();
  bool may_link() const;
  void form_links();
  void on_formed(const GroupFormed& formed);
  void spawn_rank();
  void on_start(const net::ControlMessage& message);
  void on_commit(net::schema::Commit::Reader commit);
};

Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, WorkerConfig config);

}  // namespace skein::actors
