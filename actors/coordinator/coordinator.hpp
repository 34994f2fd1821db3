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

#include "actors/coordinator/checkpoint_io.hpp"
#include "actors/coordinator/coordinator_process.hpp"
#include "actors/coordinator/journal_io.hpp"
#include "actors/coordinator/layer_source_io.hpp"
#include "actors/coordinator/observer_io.hpp"
#include "actors/coordinator/planner.hpp"
#include "actors/coordinator/remote_shard_io.hpp"
#include "actors/coordinator/start_point.hpp"
#include "actors/coordinator/worker_links.hpp"
#include "actors/coordinator/worker_orders.hpp"
#include "actors/messages.hpp"
#include "actors/unguessable_bits.hpp"
#include "net/data/data_plane.hpp"
#include "plans/base/event_rate.hpp"
#include "plans/base/outcome.hpp"
#include "plans/base/sweeps.hpp"
#include "plans/coordinator/awake_clock.hpp"
#include "plans/coordinator/coordination.hpp"

namespace skein::actors {

/// Turns the messages of workers into events of `plans::Coordination` and its decisions into
/// messages.
///   in   PeerOpened, PeerMessage, PeerClosed, PeerRejected   from the listener's links
///   in   ListenerGone          from the data plane: the answer to a `CheckListener`
///   in   PlanReady             from the Planner: the answer to a `RequestPlan`
///   in   CommitJournaled       from the JournalIo: only now the commit is broadcast
///   in   LaterLifeBegun        from the JournalIo: another coordinator has the run
///   in   CheckpointCompleted, StartFound, LeftStateFound   from the CheckpointIo
///   in   ShardLayerArrived, ShardReceived   from the RemoteShardIo
///   in   LayersUnreadable      from the LayerSourceIo
///   in   StopRequest           end in order; a repeat changes nothing
///   in   AbortRequest          end now
///   in   EmulateRequest        for experiments: a worker becomes slower, or loses a link
///   in   TickAtom              from itself: leases and time-outs
///   in   WakeAtom              from itself, when the training mode wished it
///   out  control messages to workers, reports to the ObserverIo, then EndAtom
using Coordinator = caf::typed_actor<
    caf::reacts_to<PeerOpened>, caf::reacts_to<PeerMessage>, caf::reacts_to<PeerClosed>,
    caf::reacts_to<PeerRejected>, caf::reacts_to<ListenerGone>, caf::reacts_to<plans::PlanReady>,
    caf::reacts_to<CommitJournaled>, caf::reacts_to<LaterLifeBegun>,
    caf::reacts_to<CheckpointCompleted>, caf::reacts_to<StartFound>, caf::reacts_to<LeftStateFound>,
    caf::reacts_to<ShardLayerArrived>, caf::reacts_to<ShardReceived>,
    caf::reacts_to<LayersUnreadable>, caf::reacts_to<StopRequest>, caf::reacts_to<AbortRequest>,
    caf::reacts_to<EmulateRequest>, caf::reacts_to<TickAtom>, caf::reacts_to<WakeAtom>>;

struct CoordinatorConfig {
  CoordinatorOptions options;
  uint64_t term = 0;
  StartPoint start;
  JournalIo journal;
  CheckpointIo checkpoints;
  RemoteShardIo remote_shards;
  LayerSourceIo layer_source;
  std::string data_address;  // Where it takes shards.
  /// Asked who is dead; outlives the actor. Null: nothing is found out.
  net::DataPlane* plane = nullptr;
  /// Called once for each plan: see `net::DataPlane::set_plan_secret`. Never returns 0.
  std::function<uint64_t()> draw_secret = unguessable_bits;
  ObserverIo observer;
  Planner planner;
  const plans::ModeList* modes = nullptr;  // Training modes; null: those of the product.
  /// The coordination sweeps its invariants after every event.
  bool checks_invariants = plans::kSweeps;
  /// Called once, before the observer's EndAtom.
  std::function<void(RunResult)> on_result;
  /// Called after each commit and change of members; may be null.
  std::function<void(const RunProgress&)> on_progress;
};

/// All workers of a large cluster may come at once.
inline constexpr plans::EventLimits kJoinerLimits = {.at_once = 4096};

struct CoordinatorState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "coordinator";

  Coordinator::stateful_pointer<CoordinatorState> self = nullptr;
  CoordinatorConfig config;
  std::optional<plans::Coordination> coordination;
  std::string checkpoint_path;  // To restore from; empty: the initial weights.
  WorkerLinks links;
  std::map<uint64_t, std::vector<gpu::SavedFile>> shard_files;  // By steps done.
  RunResult result;
  double tokens_per_second = 0;
  plans::DropCounts dropped;  // Messages that changed nothing, by reason.
  std::optional<plans::AwakeClock> clock;
  uint64_t looked_for_later_life_us = 0;
  std::optional<uint64_t> next_wake_us;           // When a WakeAtom will come.
  uint64_t malformed_messages = 0;                // What did not decode; each has closed its link.
  plans::EventRate stranger_events;               // Connections that anybody may open.
  plans::EventRate joiner_events{kJoinerLimits};  // What anybody who joins may cause.

  void start(CoordinatorConfig new_config);
  /// By `clock`: what is due or measured by it has no pause of this process in it.
  uint64_t now_us();
  /// Carries out decisions in order.
  void apply(const plans::CoordinatorDecisions& decisions);
  /// The same, if the event was taken; else counts why not.
  void apply(const plans::CoordinatorOutcome& outcome);
  void drop(plans::DropReason why) { dropped.add(why); }
  void wake_later();
  void on_message(const PeerMessage& message);
  void on_plan_message(plans::WorkerId worker, const net::Envelope& message);
  void on_closed(const PeerClosed& closed);
  void tell_malformed(const WorkerLinks::Peer& peer, const absl::Status& why);
  /// An event that anybody can cause: of many, only some are told, and the others counted.
  void tell_stranger(plans::RunEvent event);
  void on_tick();
  /// Tells of a pause of this process before anything is judged.
  void look_at_clock();
  void on_journaled(const CommitJournaled& done);
  /// Whoever commits hears of a later life with the next commit; whoever waits for workers, never:
  /// and those that it has are missing elsewhere.
  void look_for_later_life();

  // One per decision.
  void carry_out(const plans::WelcomeWorker& decision);
  void carry_out(const plans::RefusePeer& decision);
  void carry_out(const plans::RequestProfile& decision);
  void carry_out(const plans::ReportProfiles& decision);
  void carry_out(const plans::QuiesceWorker& decision);
  void carry_out(const plans::AssignPlan& decision);
  void carry_out(const plans::StartRun& decision);
  void carry_out(const plans::RewindJournal& decision);
  void carry_out(const plans::JournalCommit& decision);
  void carry_out(const plans::BroadcastCommit& decision);
  void carry_out(const plans::RequestPlan& decision);
  void carry_out(const plans::ClaimSamples& decision) { order(decision); }
  void carry_out(const plans::CommitPipeline& decision) { order(decision); }
  void carry_out(const plans::AverageWeights& decision) { order(decision); }
  void carry_out(const plans::AbortGroup& decision) { order(decision); }
  void carry_out(const plans::OrderToken& decision) { order(decision); }
  void carry_out(const plans::ReportValidation& decision);
  void carry_out(const plans::CompleteCheckpoint& decision);
  void carry_out(const plans::DeletePartials& decision);
  void carry_out(const plans::ReceiveShard& decision);
  void carry_out(const plans::AbandonShard& decision);
  void carry_out(const plans::EndTransfers& decision);
  void carry_out(const plans::SendLayers& decision);
  void carry_out(const plans::VerifyCheckpoint& decision);
  void carry_out(const plans::SeekLeftState& decision);
  void carry_out(const plans::StopWorker& decision);
  void carry_out(const plans::DismissWorker& decision);
  void carry_out(const plans::CheckListener& decision);
  void carry_out(const plans::StopWorkers& decision);
  void carry_out(const plans::EndRun& decision);
  void carry_out(const plans::RunEvent& decision);

  // One per message that needs more than a line.
  void on_join(plans::PeerNumber peer, const plans::JoinRequest& join);
  void on_rendezvous(plans::WorkerId from, const net::RendezvousEntry& entry);
  void on_shard_saved(plans::WorkerId worker, const net::ShardSaved& saved);
  void on_shard_received(const ShardReceived& received);
  void keep_files(uint64_t steps_done, const absl::Status& status,
                  const std::vector<gpu::SavedFile>& files);
  void on_quiesced(plans::WorkerId worker, uint64_t generation, const net::Quiesced& quiesced);
  void on_emulate(const EmulateRequest& request);
  void on_heartbeat(plans::PeerNumber peer, const net::Heartbeat& heartbeat);
  void on_timings(plans::WorkerId worker, const net::Timings& timings);
  void on_failed(plans::WorkerId worker, const net::Failed& failed);
  void on_status_request(plans::PeerNumber peer);
  void on_checkpoint_completed(const CheckpointCompleted& completed);
  void on_start_found(const StartFound& found);
  void on_left_state_found(const LeftStateFound& found);
  void tell_adopted(const gpu::AdoptedState& adopted);

  net::EnvelopeHead head(plans::WorkerId receiver) const;
  void send(plans::WorkerId worker, const net::ControlBody& body);
  void send(const WorkerOrders& orders);
  template <class Decision>
  void order(const Decision& decision) {
    send(orders_of(decision, *coordination->plan()));
  }
  void send_to_all(const net::ControlBody& body);
  void tell_progress();
};

Coordinator::behavior_type coordinator(Coordinator::stateful_pointer<CoordinatorState> self,
                                       CoordinatorConfig config);

}  // namespace skein::actors
