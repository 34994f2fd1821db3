#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "actors/replica/replica.hpp"
#include "actors/worker/coordinator_session.hpp"
#include "actors/worker/plan_preparation.hpp"
#include "actors/worker/prepare_io.hpp"
#include "actors/worker/profiling.hpp"
#include "actors/worker/state_store.hpp"
#include "actors/worker/worker_parts.hpp"
#include "actors/worker/worker_process.hpp"
#include "net/data/data_plane.hpp"
#include "net/reduce/gradient_group.hpp"
#include "plans/worker/last_save.hpp"

namespace skein::actors {

/// The `attempt`-th link to the coordinator is there.
struct LinkOpened {
  uint64_t attempt = 0;
  std::shared_ptr<net::ControlLink> link;
};
/// ... or has brought a message. What comes from one that was given up is nobody's answer.
struct LinkMessage {
  uint64_t attempt = 0;
  net::Envelope message;
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
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::LinkMessage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::LinkClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::LeaveRequest)

namespace skein::actors {

/// Joins the job, tells the coordinator that it lives, and hosts the replicas it is assigned, under
/// one plan after the other. It keeps the state of the plan before until the next one has started,
/// and snapshots: of other workers' stages or, under local updates, of its own if no other worker
/// can keep them.
///
///   1 idle:       no plan
///   2 quiescing:  the Replica of the plan before retires; then Quiesced
///   3 preparing:  a plan is assigned: see PlanPreparation; then Prepared
///   4 hosting:    a Replica runs, or waits for Start; none if the plan gives us nothing to do
///   5 giving up:  the coordinator is gone for good; a Replica retires, and what is held is written
///                 beside the run's checkpoints, if the run folder is seen: see `plans::LastSave`.
///                 From there the next life of the coordinator may go on
///   6 ended:      nothing happens any more
///
///   in   LinkOpened, LinkMessage, LinkClosed   from the link to the coordinator; a link that is
///        lost is made anew, and the plan in force goes on until the coordinator quiesces it
///   in   PreparedReplicas, StateSent, ProfileMeasured, EmergencySaved   from the PrepareIo
///   in   TextAnswer         from the TextStageIo, to which goes on what the coordinator says of a
///        text; there is no plan then
///   in   GroupFormed        from a GroupIo or a StageLinkIo
///   in   ReplicasRetired, ReplicaActivity, SnapshotTaken, WorkerFault   from the Replica, or (the
///        last one) from the data plane
///   in   StateArrived       from the data plane: a layer, for us or to be kept
///   in   LeaveRequest       SIGTERM or a notice: told to the coordinator
///   in   HeartbeatAtom      from itself, every elastic.heartbeat_interval_seconds
///   out  Join, Profiled, Quiesced, Prepared, SnapshotKept, PeerFailure, CheckpointUnreadable,
///        LayersWanted, Leave, Heartbeat, Failed   to the coordinator
using Worker = caf::typed_actor<
    caf::reacts_to<LinkOpened>, caf::reacts_to<LinkMessage>, caf::reacts_to<LinkClosed>,
    caf::reacts_to<PreparedReplicas>, caf::reacts_to<StateSent>, caf::reacts_to<ProfileMeasured>,
    caf::reacts_to<EmergencySaved>, caf::reacts_to<GroupFormed>, caf::reacts_to<ReplicasRetired>,
    caf::reacts_to<TextAnswer>, caf::reacts_to<ReplicaActivity>, caf::reacts_to<SnapshotTaken>,
    caf::reacts_to<StateArrived>, caf::reacts_to<WorkerFault>, caf::reacts_to<LeaveRequest>,
    caf::reacts_to<HeartbeatAtom>>;

struct WorkerConfig {
  WorkerOptions options;
  WorkerParts parts;
  std::shared_ptr<net::DataPlane> plane;
  std::shared_ptr<net::RendezvousStore> store;
  PrepareIo prepare;
  /// Connects to the coordinator, trying for so many seconds; LinkOpened or LinkClosed follows.
  std::function<void(uint64_t attempt, double seconds)> connect;
  /// Called once with how the worker ended, and whether its device or disk is still at work, which
  /// nobody is to wait for.
  std::function<void(absl::Status, bool is_at_work)> on_end;
};

struct WorkerState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "worker";
  enum class Phase { kIdle, kQuiescing, kPreparing, kHosting, kGivingUp, kEnded };

  Worker::stateful_pointer<WorkerState> self = nullptr;
  WorkerConfig config;
  Phase phase = Phase::kIdle;
  std::unique_ptr<CoordinatorSession> session;
  std::unique_ptr<PlanPreparation> preparation;  // Has a plan in kPreparing and kHosting.
  std::unique_ptr<Profiling> profiling;
  StateStore store;
  std::optional<TextStageIo> text_stage;  // Once text is to be drawn.
  /// In kQuiescing, in kHosting if it hosts something, and in kGivingUp until it has retired.
  std::optional<Replica> replica_actor;
  bool beats = false;                   // A HeartbeatAtom is on its way.
  std::optional<std::string> leaves;    // The reason.
  std::optional<absl::Status> failure;  // It computes nothing any more, and gives what it holds.
  uint64_t leaves_since_us = 0;         // With `leaves`.
  std::optional<plans::LastSave> last_save;  // From kGivingUp on.
  // What the newest Joined says; the device is that of the first one.
  plans::JobSpec job;
  uint64_t config_digest = 0;
  std::string run_folder;
  std::string coordinator_data_address;  // Where the coordinator takes shards.
  std::string other_run;  // Why we look on for our coordinator: another run's answers; else empty.
  std::shared_ptr<gpu::Device> device;
  Device work;                         // Runs the work of `device`; valid with it.
  std::shared_ptr<DeviceShare> share;  // Null: no other job uses `device`.
  // What a heartbeat says.
  uint64_t steps_done = 0;
  int unanswered = 0;        // Heartbeats since the coordinator's last answer to one.
  int losses_quiescing = 0;  // Connections that have ended in this kQuiescing.
  int older_joins = 0;       // Answers of a coordinator with a smaller term, one after the other.
  ReplicaActivity activity;
  plans::DropCounts dropped;  // Events that changed nothing, by reason.

  void start(WorkerConfig new_config);
  bool has_ended() const { return phase == Phase::kEnded; }
  /// It takes part in the run no more.
  bool is_over() const { return has_ended() || phase == Phase::kGivingUp; }
  void on_link(const LinkOpened& opened);
  void on_link_closed(const LinkClosed& closed);
  void lose_coordinator();
  void on_control(const net::Envelope& message);
  void on_plan_message(const net::Envelope& message);
  void on_refused(const net::Refused& refused);
  void on_other_run(const std::string& here);
  bool serves_other_than(const std::string& run) const {
    return !session->run().empty() && run != session->run();
  }
  void on_joined(const net::Joined& joined, uint64_t term);
  void on_older_coordinator(uint64_t term);
  absl::Status take_config(const net::Joined& joined);
  /// Nobody is told that it is here before its device has ended what it has begun.
  bool waits_for_device() const;
  void look_again();
  /// False: the message is of no text.
  bool on_text(const net::ControlBody& body);
  void on_text_request(const plans::TextRequest& request);
  void on_text_answer(const TextAnswer& answer);
  void on_quiesce(const net::Quiesce& order, uint64_t generation);
  void on_retired(const ReplicasRetired& retired);
  void on_assign(const net::Assign& assign);
  void on_ready();
  void on_start(const net::Envelope& message);
  void on_commit(const plans::CommitOrder& order);
  void on_state(const StateArrived& arrived);
  void on_snapshot(const SnapshotTaken& taken);
  void on_state_sent(const StateSent& sent);
  void on_measured(const ProfileMeasured& result);
  void on_leave(const LeaveRequest& leave);
  bool has_waited_to_leave() const;
  /// What it holds outlives it, if it sees the run folder.
  bool may_save() const;
  void on_heartbeat();
  void on_heartbeat_ack(const net::HeartbeatAck& ack);
  void on_fault(const WorkerFault& fault);
  void on_no_memory(const WorkerFault& fault);
  void tell_quiesced();
  /// `is_at_work`: it is what the replicas do that has failed, if there are any.
  void tell_failed(const absl::Status& why, bool is_at_work = true);
  void forget_lack_of_memory();
  void tell_peer_failure(const absl::Status& why, plans::WorkerId peer = {});
  void give_up(const absl::Status& why);
  /// The global average that ends a round comes before the commit of its steps.
  bool is_ahead(const HeldState& state) const { return state.step > steps_done; }
  plans::LastSave::Held held_to_save() const;
  void carry_out(const plans::LastSave::Decision& decision);
  void save(plans::LastSave::Part part);
  void on_saved(const EmergencySaved& saved);
  void end(const absl::Status& status);
  /// `is_at_work`: as `WorkerConfig::on_end`.
  void end(const absl::Status& status, bool is_at_work);
  void check_invariants() const;
  uint64_t now_us() const;
};

Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, WorkerConfig config);

}  // namespace skein::actors
