#include "actors/coordinator/coordinator.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "actors/coordinator/plan_orders.hpp"
#include "actors/end_process.hpp"
#include "actors/microseconds.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "plans/base/check.hpp"
#include "plans/job/learning_rate.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::actors {
namespace {

/// Leases and time-outs are whole seconds and more: this resolution is fine enough.
constexpr auto kTick = std::chrono::milliseconds(200);
constexpr uint64_t kTickUs = 200'000;
/// What a tick may be late on a busy machine.
constexpr uint64_t kTickSlackUs = 100'000;

/// A stage saves its own files: what it calls them decides which ones a checkpoint lists.
bool has_names_of_stage(const net::ShardSaved& saved, const std::optional<plans::Plan>& plan) {
  if (!plan) return false;
  const int stages = static_cast<int>(plan->stages.size());
  std::set<std::string> own = {gpu::shard_name("model", saved.stage, stages),
                               gpu::shard_name("optimizer", saved.stage, stages)};
  const size_t kinds = own.size();
  if (!saved.error.empty()) return saved.files.empty();
  for (const gpu::SavedFile& file : saved.files) {
    if (own.erase(file.name) == 0) return false;
  }
  return saved.files.size() == kinds;
}

}  // namespace

Coordinator::behavior_type coordinator(Coordinator::stateful_pointer<CoordinatorState> self,
                                       CoordinatorConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.start(std::move(config));
  self->delayed_send(self, kTick, TickAtom::value);
  return {
      [self](const PeerOpened& opened) {
        CoordinatorState& state = self->state;
        state.links.open(opened.peer, opened.link, opened.role, state.now_us());
      },
      [self](const PeerMessage& message) { self->state.on_message(message); },
      [self](const PeerClosed& closed) { self->state.on_closed(closed); },
      [self](const PeerRejected& rejected) {
        self->state.tell_stranger(
            {"peer.rejected",
             absl::StrCat("turned away ", rejected.address, ": ", rejected.reason),
             {{"peer", rejected.address}, {"reason", rejected.reason}}});
      },
      [self](const ListenerGone& gone) {
        self->state.apply(
            self->state.coordination->on_worker_gone(gone.address, self->state.now_us()));
      },
      [self](const plans::PlanReady& ready) {
        self->state.apply(self->state.coordination->on_plan_ready(ready, self->state.now_us()));
      },
      [self](const CommitJournaled& done) { self->state.on_journaled(done); },
      [self](const LaterLifeBegun& found) {
        self->state.apply(self->state.coordination->on_superseded(found.status));
      },
      [self](const CheckpointCompleted& done) { self->state.on_checkpoint_completed(done); },
      [self](const StartFound& found) { self->state.on_start_found(found); },
      [self](const LeftStateFound& found) { self->state.on_left_state_found(found); },
      [self](const ShardLayerArrived& layer) {
        CoordinatorState& state = self->state;
        if (layer.generation != state.coordination->generation()) {
          return state.drop(plans::DropReason::kStale);
        }
        state.apply(
            state.coordination->on_shard_layer(layer.stage, layer.steps_done, state.now_us()));
      },
      [self](const ShardReceived& received) { self->state.on_shard_received(received); },
      [self](const LayersUnreadable& unreadable) {
        CoordinatorState& state = self->state;
        if (unreadable.generation != state.coordination->generation()) {
          return state.drop(plans::DropReason::kStale);
        }
        state.apply(state.coordination->on_checkpoint_unreadable(
            unreadable.worker, std::string(unreadable.why.message()), state.now_us()));
      },
      [self](const StopRequest& request) {
        self->state.apply(
            self->state.coordination->on_stop_request(request.reason, self->state.now_us()));
      },
      [self](const AbortRequest& request) {
        self->state.apply(self->state.coordination->on_fault(request.why));
      },
      [self](const EmulateRequest& request) { self->state.on_emulate(request); },
      [self](TickAtom) {
        self->state.on_tick();
        self->state.clock->on_tick(to_us(self->clock().now()));
        self->delayed_send(self, kTick, TickAtom::value);
      },
      [self](WakeAtom) {
        self->state.next_wake_us.reset();
        self->state.on_tick();
      },
  };
}

void CoordinatorState::start(CoordinatorConfig new_config) {
  config = std::move(new_config);
  if (config.options.fail_point) config.options.fail_point->identify({});
  result.steps_done = config.start.durable_step;
  checkpoint_path = config.start.checkpoint_path;
  plans::Coordination::Options options;
  options.job = config.options.job;
  options.run = config.options.run_id;
  options.config_digest = config.options.config_digest;
  options.worker_count = config.options.worker_count;
  options.plan = config.options.plan;
  options.only_profiles = config.options.only_profiles;
  options.term = config.term;
  options.committed_steps = config.start.committed_steps;
  options.committed_norm = config.start.committed_norm;
  options.committed_loss = config.start.committed_loss;
  options.generations = config.start.step_generations;
  options.durable_step = config.start.durable_step;
  options.generation = config.start.generation;
  options.last_plan = config.start.last_plan;
  options.earlier_workers = config.start.earlier_workers;
  options.is_verified = config.start.is_verified;
  options.awaits_last_workers = config.options.awaits_last_workers;
  options.modes = config.modes;
  clock.emplace(kTickUs, kTickSlackUs, to_us(self->clock().now()));
  coordination.emplace(std::move(options), now_us());
  tell_adopted(config.start.adopted);
  for (const std::string& line : config.start.passed_over) {
    carry_out(plans::RunEvent{
        "checkpoint.passed_over", absl::StrCat(line, "; it is left alone"), {{"fault", line}}});
  }
  const bool goes_on = config.options.load_path == config.options.run_folder;
  const bool is_resumed = config.start.durable_step > 0 && goes_on;
  if (is_resumed && !config.start.has_journal) {
    carry_out(plans::RunEvent{"journal.lost",
                              absl::StrCat("the journal of ", config.options.run_folder,
                                           " is lost: the run begins from the checkpoint of step ",
                                           config.start.durable_step, ", whatever workers hold"),
                              {{"step", absl::StrCat(config.start.durable_step)}}});
  }
  if (config.start.is_verified) return;
  self->send(config.checkpoints,
             StartRequest{config.options.load_path, goes_on ? config.options.run_id : "",
                          config.start.durable_step, std::nullopt},
             CheckpointListener(self));
}

void CoordinatorState::tell_adopted(const gpu::AdoptedState& adopted) {
  for (const std::string& fault : adopted.passed_over) {
    carry_out(plans::RunEvent{
        "checkpoint.passed_over",
        absl::StrCat("workers that gave up this run's coordinator have left newer state, which is "
                     "not whole: ",
                     fault),
        {{"fault", fault}}});
  }
  if (adopted.path.empty()) return;
  carry_out(plans::RunEvent{
      "checkpoint.adopted",
      absl::StrCat("workers that gave up this run's coordinator have left the state after step ",
                   adopted.steps_done, ": ", adopted.path, " was made of it"),
      {{"step", absl::StrCat(adopted.steps_done)}, {"path", adopted.path}}});
}

uint64_t CoordinatorState::now_us() { return clock->now_us(to_us(self->clock().now())); }

void CoordinatorState::apply(const plans::CoordinatorDecisions& decisions) {
  for (const plans::CoordinatorDecision& decision : decisions) {
    std::visit([this](const auto& each) { carry_out(each); }, decision);
  }
  if (!coordination->failed_start(now_us()).ok()) tell_progress();
  if (config.checks_invariants) coordination->check_invariants();
  wake_later();
}

void CoordinatorState::apply(const plans::CoordinatorOutcome& outcome) {
  if (dropped.note(outcome)) apply(outcome.decisions());
}

/// Ticks are too rare for some wishes of a training mode. One that comes too early does no harm.
void CoordinatorState::wake_later() {
  const std::optional<uint64_t> wish_us = coordination->wake_us();
  if (!wish_us || (next_wake_us && *next_wake_us <= *wish_us)) return;
  next_wake_us = wish_us;
  const uint64_t now = now_us();
  const uint64_t wait_us = *wish_us > now ? *wish_us - now : 0;
  self->delayed_send(self, std::chrono::microseconds(wait_us), WakeAtom::value);
}

void CoordinatorState::on_closed(const PeerClosed& closed) {
  look_at_clock();
  const WorkerLinks::Peer* peer = links.find(closed.peer);
  if (peer == nullptr) return;
  if (absl::IsInvalidArgument(closed.why)) tell_malformed(*peer, closed.why);
  const plans::WorkerId worker = links.close(closed.peer);
  if (worker.value == 0) return;
  tell_progress();
  const std::string text =
      closed.why.ok() ? "it closed its connection" : std::string(closed.why.message());
  apply(coordination->on_worker_lost(worker, absl::UnavailableError(text), now_us()));
}

void CoordinatorState::tell_malformed(const WorkerLinks::Peer& peer, const absl::Status& why) {
  ++malformed_messages;
  const std::string& address = peer.link->peer_address();
  const std::string reason(why.message());
  std::map<std::string, std::string> fields = {
      {"peer", address}, {"reason", reason}, {"count", absl::StrCat(malformed_messages)}};
  if (peer.worker.value != 0) fields["worker"] = absl::StrCat(peer.worker.value);
  tell_stranger({"peer.malformed",
                 absl::StrCat("closed the link of ", address, ", whose message ", reason),
                 std::move(fields)});
}

void CoordinatorState::look_at_clock() {
  const uint64_t now = now_us();
  const uint64_t pause_us = clock->take_pause_us();
  if (pause_us == 0) return;
  looked_for_later_life_us = 0;  // There may be one by now.
  apply(coordination->on_own_pause(pause_us, now));
}

void CoordinatorState::on_journaled(const CommitJournaled& done) {
  if (done.is_retried) return apply(coordination->on_journal_delayed(done.status, now_us()));
  reach(config.options.fail_point, FailPlace::kBeforeCommitBroadcast);
  const bool is_superseded = absl::IsFailedPrecondition(done.status);
  apply(done.status.ok() ? coordination->on_journaled(done.step, now_us())
        : is_superseded  ? coordination->on_superseded(done.status)
                         : coordination->on_fault(done.status));
  apply(coordination->after_commit(now_us()));
}

void CoordinatorState::look_for_later_life() {
  const double lease_s = config.options.job.elastic.heartbeat_timeout_seconds;
  const auto lease_us = static_cast<uint64_t>(lease_s * plans::kMicrosecondsPerSecond);
  if (coordination->is_training() || now_us() < looked_for_later_life_us + lease_us) return;
  looked_for_later_life_us = now_us();
  self->send(config.journal, LaterLifeRequest{}, LaterLifeListener(self));
}

void CoordinatorState::tell_stranger(plans::RunEvent event) {
  if (stranger_events.admit(now_us())) carry_out(event);
}

void CoordinatorState::on_tick() {
  look_at_clock();
  look_for_later_life();
  apply(coordination->on_timer(now_us()));
  links.close_silent(now_us());
  if (const uint64_t held_back = stranger_events.take_held_back(now_us())) {
    carry_out(plans::RunEvent{
        "peer.rejected",
        absl::StrCat("turned away ", held_back, " more connections, which are not listed"),
        {{"count", absl::StrCat(held_back)}}});
  }
  if (const uint64_t held_back = joiner_events.take_held_back(now_us())) {
    carry_out(plans::RunEvent{
        "worker.unlisted",
        absl::StrCat(held_back, " more events of workers without a part are not listed"),
        {{"count", absl::StrCat(held_back)}}});
  }
}

net::EnvelopeHead CoordinatorState::head(plans::WorkerId receiver) const {
  net::EnvelopeHead head;
  head.generation = coordination->generation();
  head.term = config.term;
  head.receiver = receiver.value;
  // One trace id per step, shared by all stages.
  head.trace_high = config.term;
  head.trace_low = coordination->steps_done() + 1;
  return head;
}

void CoordinatorState::tell_progress() {
  if (!config.on_progress) return;
  RunProgress progress;
  progress.has_started = coordination->has_trained();
  progress.steps_done = coordination->steps_done();
  for (const auto& [id, member] : coordination->members()) {
    progress.processes[id] = member.request.process_id;
  }
  progress.links = links.workers().size();
  progress.failed_start = coordination->failed_start(now_us());
  config.on_progress(progress);
}

void CoordinatorState::send(plans::WorkerId worker, const net::ControlBody& body) {
  links.send(head(worker), body);
}

void CoordinatorState::send(const WorkerOrders& orders) {
  for (const WorkerOrder& order : orders) send(order.to, order.body);
}

void CoordinatorState::send_to_all(const net::ControlBody& body) {
  for (const auto& [worker, peer] : links.workers()) send(worker, body);
}

void CoordinatorState::carry_out(const plans::WelcomeWorker& decision) {
  links.bind(decision.peer, decision.worker);
  const CoordinatorOptions& run = config.options;
  send(decision.worker, net::Joined{decision.worker, run.job_id, run.job_config, run.run_folder,
                                    run.run_id, run.config_digest, config.data_address});
  tell_progress();
}

void CoordinatorState::carry_out(const plans::RefusePeer& decision) {
  const WorkerLinks::Peer* peer = links.find(decision.peer);
  if (peer == nullptr) return;
  peer->link->send(net::encode(head({}), net::Refused{decision.reason, decision.run}));
  peer->link->close();
}

void CoordinatorState::carry_out(const plans::RequestProfile& decision) {
  send(decision.worker,
       net::ProfileRequest{decision.rows, addresses_of(coordination->members(), decision.peers)});
}

void CoordinatorState::carry_out(const plans::ReportProfiles& decision) {
  self->send(config.observer, decision);
}

void CoordinatorState::carry_out(const plans::QuiesceWorker& decision) {
  net::EnvelopeHead envelope = head(decision.worker);
  envelope.generation = decision.generation;
  links.send(envelope, net::Quiesce{decision.committed_steps, decision.gradient_norm,
                                    decision.committed_generation});
}

void CoordinatorState::carry_out(const plans::AssignPlan& decision) {
  self->send(config.observer, decision);
  self->send(config.journal, decision.plan);
  // Somebody else was lost in the same moment: what follows quiesces the plan before it was sent.
  if (decision.plan.generation != coordination->generation()) return;
  net::Assign common;
  common.load_path = checkpoint_path;
  common.data_bytes = config.start.data.bytes;
  common.data_digest = config.start.data.digest;
  common.config_digest = config.options.config_digest;
  common.secret = config.draw_secret();
  if (config.plane != nullptr) {
    config.plane->set_plan_secret({decision.plan.generation, common.secret});
  }
  const auto& members = coordination->members();
  const plans::PartNeeds needs =
      part_needs(config.options.job, plans::modes_or_own(config.modes), decision.plan, members);
  const PlanOrders orders(decision, members, needs, std::move(common));
  for (const auto& [worker, peer] : links.workers()) send(worker, orders.of(worker));
}

void CoordinatorState::carry_out(const plans::StartRun& decision) {
  reach(config.options.fail_point, FailPlace::kBeforeStart);
  const plans::CommitOrder& order = decision.order;
  send_to_all(net::Start{order.validate, order.checkpoint, order.last, order.snapshot, order.turn});
  tell_progress();
}

void CoordinatorState::carry_out(const plans::RequestPlan& decision) {
  self->send(config.planner, decision, PlannerListener(self));
}

void CoordinatorState::carry_out(const plans::RewindJournal& decision) {
  self->send(config.journal, decision);
}

void CoordinatorState::carry_out(const plans::JournalCommit& decision) {
  self->send(config.journal, JournalRequest{decision.record}, JournalListener(self));
}

void CoordinatorState::carry_out(const plans::BroadcastCommit& decision) {
  plans::CommitOrder order = decision.order;
  order.profile = decision.profile;
  for (const auto& [worker, peer] : links.workers()) {
    net::EnvelopeHead envelope = head(worker);
    envelope.generation = decision.generation;
    links.send(envelope, order);
  }
  result.steps_done = decision.order.step + 1;
  StepReport report;
  report.step = decision.order.step + 1;
  report.loss = decision.loss;
  report.gradient_norm = decision.order.gradient_norm;
  report.learning_rate =
      plans::learning_rate(config.options.job, static_cast<int64_t>(decision.order.step));
  report.step_seconds = decision.step_seconds;
  report.tokens = decision.tokens;
  report.samples = decision.samples;
  report.workers_total = static_cast<int32_t>(coordination->members().size());
  report.workers_active = static_cast<int32_t>(plans::worker_count(*coordination->plan()));
  report.control_seconds = decision.control_seconds;
  report.stage_busy_seconds = decision.stage_busy_seconds;
  report.stage_device_wait_seconds = decision.stage_device_wait_seconds;
  report.stage_stash_peak = decision.stage_stash_peak;
  report.pipeline_samples = decision.pipeline_samples;
  report.stage_staleness = decision.stage_staleness;
  report.stage_weight_delay = decision.stage_weight_delay;
  report.dropped = dropped;
  for (const auto& [id, member] : coordination->members()) {
    report.dropped_by_workers.add(member.activity.dropped);
  }
  report.snapshot_waits = coordination->snapshot_waits();
  report.goodput = coordination->goodput(now_us());
  if (report.step_seconds > 0) {
    tokens_per_second = static_cast<double>(report.tokens) / report.step_seconds;
  }
  self->send(config.observer, std::move(report));
  tell_progress();
}

void CoordinatorState::carry_out(const plans::ReportValidation& decision) {
  self->send(config.observer,
             ValidationReport{decision.step + 1, decision.loss, decision.tokens, decision.seconds});
}

void CoordinatorState::carry_out(const plans::CompleteCheckpoint& decision) {
  CheckpointRequest request;
  request.generation = coordination->generation();
  request.state = gpu::trainer_state_after(config.options.job, decision.steps_done);
  request.state.run = config.options.run_id;
  request.state.positions = config.start.positions;
  request.state.from_digest = config.start.from_digest;
  request.state.data_bytes = config.start.data.bytes;
  request.state.data_digest = config.start.data.digest;
  request.state.loss = decision.loss;
  request.state.plan = plans::to_text(*coordination->plan());
  request.files = std::move(shard_files[decision.steps_done]);
  // Those of older ones are of checkpoints that have failed.
  shard_files.erase(shard_files.begin(), shard_files.upper_bound(decision.steps_done));
  self->send(config.checkpoints, std::move(request), CheckpointListener(self));
}

void CoordinatorState::carry_out(const plans::DeletePartials& decision) {
  self->send(config.checkpoints, decision);
}

void CoordinatorState::carry_out(const plans::ReceiveShard& decision) {
  self->send(config.remote_shards, decision, RemoteShardListener(self));
}

void CoordinatorState::carry_out(const plans::AbandonShard& decision) {
  self->send(config.remote_shards, decision);
}

void CoordinatorState::carry_out(const plans::EndTransfers& decision) {
  shard_files.clear();
  self->send(config.remote_shards, decision);
  self->send(config.layer_source, decision);
}

void CoordinatorState::carry_out(const plans::SendLayers& decision) {
  const auto member = coordination->members().find(decision.worker);
  if (member == coordination->members().end()) return;
  self->send(config.layer_source,
             LayersRequest{decision, checkpoint_path, member->second.request.data_address},
             LayersListener(self));
}

/// Of the run's own checkpoints an older one may do; of the one that it was started with there is
/// no other.
void CoordinatorState::carry_out(const plans::VerifyCheckpoint& decision) {
  const bool is_own = checkpoint_path.starts_with(config.options.run_folder + "/");
  self->send(
      config.checkpoints,
      StartRequest{is_own ? config.options.run_folder : checkpoint_path,
                   is_own ? config.options.run_id : "", decision.steps_max, config.start.data},
      CheckpointListener(self));
}

void CoordinatorState::carry_out(const plans::SeekLeftState& decision) {
  self->send(config.checkpoints,
             LeftStateRequest{decision, config.start.positions, config.start.from_digest},
             CheckpointListener(self));
}

void CoordinatorState::carry_out(const plans::StopWorker& decision) {
  send(decision.worker, net::Stop{decision.reason});
  tell_progress();
}

void CoordinatorState::carry_out(const plans::DismissWorker& decision) {
  links.dismiss(decision.worker);
  tell_progress();
}

void CoordinatorState::carry_out(const plans::CheckListener& decision) {
  if (config.plane == nullptr) return;
  config.plane->check_listener(decision.address,
                               config.options.job.elastic.heartbeat_timeout_seconds,
                               [to = Coordinator(self), address = decision.address] {
                                 caf::anon_send(to, ListenerGone{address});
                               });
}

void CoordinatorState::carry_out(const plans::StopWorkers& decision) {
  result.keeps_state = decision.keeps_state;
  result.is_kept_whole = decision.is_whole;
  send_to_all(net::Stop{decision.reason, decision.keeps_state});
}

void CoordinatorState::carry_out(const plans::EndRun& decision) {
  result.status = decision.status;
  if (coordination->has_trained()) result.steps_done = coordination->steps_done();
  result.stopped_early = decision.stopped_early;
  config.on_result(result);
  // A worker closes its link when it has read Stop. If we were first, what it still sends us would
  // meet a closed socket, and the reset could take Stop away from it.
  links.close_strangers();
  tell_progress();
  self->send(config.observer, EndAtom::value);
}

void CoordinatorState::carry_out(const plans::RunEvent& decision) {
  if (decision.anybody_may_cause && !joiner_events.admit(now_us())) return;
  self->send(config.observer, EventReport{decision.name, decision.text, decision.fields});
}

void CoordinatorState::on_emulate(const EmulateRequest& request) {
  send(request.worker, net::Emulate{request.speed, request.drop_link_to, request.drop_seconds});
}

void CoordinatorState::on_checkpoint_completed(const CheckpointCompleted& completed) {
  if (completed.status.ok()) {
    result.checkpoint_path = completed.path;
    checkpoint_path = completed.path;
    self->send(config.observer,
               CheckpointReport{completed.steps_done, completed.path, completed.bytes});
  }
  apply(coordination->on_checkpoint_completed(completed.steps_done, completed.status, now_us()));
}

void CoordinatorState::on_start_found(const StartFound& found) {
  const VerifiedStart& start = found.start;
  if (found.status.ok()) config.start.data = start.data;
  if (found.status.ok() && start.checkpoint.ok()) checkpoint_path = start.checkpoint_path;
  apply(coordination->on_checkpoint_verified(
      {found.status, start.checkpoint, start.durable_step, start.faults}, now_us()));
}

void CoordinatorState::on_left_state_found(const LeftStateFound& found) {
  if (found.is_retried) return apply(coordination->on_left_state_delayed(found.status, now_us()));
  tell_adopted(found.adopted);
  if (!found.adopted.path.empty()) {
    checkpoint_path = result.checkpoint_path = found.adopted.path;
  }
  apply(coordination->on_left_state(found.adopted.steps_done, now_us()));
}

void CoordinatorState::on_message(const PeerMessage& message) {
  look_at_clock();
  const WorkerLinks::Peer* peer = links.find(message.peer);
  if (peer == nullptr) return;
  const net::EnvelopeHead& from = message.message.head;
  const net::ControlBody& body = message.message.body;
  const plans::WorkerId worker = peer->worker;
  if (const auto* join = std::get_if<plans::JoinRequest>(&body))
    return on_join(message.peer, *join);
  const bool is_viewer = peer->role == net::schema::Role::VIEWER;
  if (std::holds_alternative<net::StatusRequest>(body)) {
    return is_viewer ? on_status_request(message.peer) : drop(plans::DropReason::kNotAllowed);
  }
  const auto* drain = std::get_if<net::DrainRequest>(&body);
  if (drain && is_viewer) {
    return apply(coordination->on_leave(drain->worker, "skein drain", now_us()));
  }
  // The rest is for members, and for the generation in force.
  if (worker.value == 0) return drop(plans::DropReason::kUnknown);
  if (from.term != config.term) return drop(plans::DropReason::kStale);
  coordination->on_heard(worker, now_us());
  if (const auto* heartbeat = std::get_if<net::Heartbeat>(&body)) {
    return on_heartbeat(message.peer, *heartbeat);
  }
  if (const auto* failed = std::get_if<net::Failed>(&body)) return on_failed(worker, *failed);
  if (const auto* measured = std::get_if<plans::MeasuredWorker>(&body)) {
    return apply(coordination->on_profiled(worker, *measured, now_us()));
  }
  if (const auto* failure = std::get_if<net::PeerFailure>(&body)) {
    const auto& [reason, neighbour, is_unreachable] = *failure;
    return apply(is_unreachable
                     ? coordination->on_unreachable(worker, neighbour, reason, now_us())
                     : coordination->on_peer_failure(worker, neighbour, reason, now_us()));
  }
  if (const auto* leave = std::get_if<net::Leave>(&body)) {
    return apply(coordination->on_leave(worker, leave->reason, now_us()));
  }
  if (from.generation != coordination->generation()) return drop(plans::DropReason::kStale);
  on_plan_message(worker, message.message);
}

/// What belongs to the generation in force.
void CoordinatorState::on_plan_message(plans::WorkerId worker, const net::Envelope& message) {
  const net::ControlBody& body = message.body;
  if (const auto* quiesced = std::get_if<net::Quiesced>(&body)) {
    on_quiesced(worker, message.head.generation, *quiesced);
  } else if (const auto* kept = std::get_if<net::SnapshotKept>(&body)) {
    apply(coordination->on_snapshot_kept(worker, kept->stage, kept->step));
  } else if (const auto* unreadable = std::get_if<net::CheckpointUnreadable>(&body)) {
    apply(coordination->on_checkpoint_unreadable(worker, unreadable->reason, now_us()));
  } else if (std::holds_alternative<net::LayersWanted>(body)) {
    apply(coordination->on_layers_wanted(worker, now_us()));
  } else if (const auto* prepared = std::get_if<net::Prepared>(&body)) {
    apply(coordination->on_prepared(worker, message.head.generation, now_us(), prepared->turns));
  } else if (const auto* entry = std::get_if<net::RendezvousEntry>(&body)) {
    on_rendezvous(worker, *entry);
  } else if (const auto* ready = std::get_if<plans::ReadyReport>(&body)) {
    apply(coordination->on_ready(worker, *ready, now_us()));
  } else if (const auto* token = std::get_if<net::TokenReport>(&body)) {
    apply(coordination->on_token(worker, token->replica, token->step, token->token, token->event,
                                 now_us()));
  } else if (const auto* signal = std::get_if<net::EarlySignal>(&body)) {
    apply(coordination->on_early_signal(worker, signal->replica, signal->step, now_us()));
  } else if (const auto* reduced = std::get_if<net::Reduced>(&body)) {
    apply(coordination->on_reduced(worker, reduced->replica, reduced->step, reduced->norm_squared,
                                   now_us()));
  } else if (const auto* averaged = std::get_if<net::Averaged>(&body)) {
    apply(coordination->on_averaged(worker, averaged->replica, averaged->number, averaged->ok,
                                    now_us()));
  } else if (const auto* validated = std::get_if<net::Validated>(&body)) {
    apply(coordination->on_validated(worker, validated->replica, validated->step,
                                     validated->loss_sum, validated->loss_tokens, now_us()));
  } else if (const auto* saved = std::get_if<net::ShardSaved>(&body)) {
    on_shard_saved(worker, *saved);
  } else if (const auto* sent = std::get_if<net::ShardSent>(&body)) {
    apply(coordination->on_shard_sent(worker, sent->stage, sent->step, now_us()));
  } else if (const auto* timings = std::get_if<net::Timings>(&body)) {
    on_timings(worker, *timings);
  } else {
    drop(plans::DropReason::kUnexpected);
  }
}

void CoordinatorState::on_join(plans::PeerNumber peer, const plans::JoinRequest& join) {
  const WorkerLinks::Peer& from = *links.find(peer);
  if (from.role != net::schema::Role::WORKER) return drop(plans::DropReason::kNotAllowed);
  plans::JoinRequest request = join;
  const std::string& address = from.link->peer_address();
  request.remote_host = address.substr(0, address.rfind(':'));
  apply(coordination->on_join(peer, std::move(request), now_us()));
}

void CoordinatorState::on_rendezvous(plans::WorkerId from, const net::RendezvousEntry& entry) {
  if (!coordination->takes_part(from)) return drop(plans::DropReason::kNotAllowed);
  std::vector<plans::WorkerId> receivers = entry.receivers;
  if (receivers.empty()) {
    for (const auto& [worker, peer] : links.workers()) receivers.push_back(worker);
  }
  // Each gets it once, however often the sender names it.
  std::sort(receivers.begin(), receivers.end());
  receivers.erase(std::unique(receivers.begin(), receivers.end()), receivers.end());
  std::erase_if(receivers, [&](plans::WorkerId each) {
    return each == from || !coordination->takes_part(each);
  });
  links.send_same(head({}), net::RendezvousEntry{entry.key, entry.value, {}}, receivers);
}

void CoordinatorState::on_shard_saved(plans::WorkerId worker, const net::ShardSaved& saved) {
  if (!has_names_of_stage(saved, coordination->plan())) {
    return drop(plans::DropReason::kNotAllowed);
  }
  const absl::Status status =
      saved.error.empty() ? absl::OkStatus() : absl::UnavailableError(saved.error);
  const plans::CoordinatorOutcome outcome =
      coordination->on_shard_saved(worker, saved.stage, saved.step, status, now_us());
  if (outcome.is_accepted()) keep_files(saved.step, status, saved.files);
  apply(outcome);
}

void CoordinatorState::on_shard_received(const ShardReceived& received) {
  const absl::Status status = received.files.status();
  const plans::CoordinatorOutcome outcome =
      coordination->on_shard_received(received.shard, status, now_us());
  if (outcome.is_accepted()) {
    keep_files(received.shard.steps_done, status,
               received.files.ok() ? *received.files : std::vector<gpu::SavedFile>());
  }
  apply(outcome);
}

/// A stage of the checkpoint of that step is on disk, in these files; or it cannot be, and the
/// checkpoint has failed.
void CoordinatorState::keep_files(uint64_t steps_done, const absl::Status& status,
                                  const std::vector<gpu::SavedFile>& files) {
  if (!status.ok()) {
    shard_files.erase(steps_done);
    return;
  }
  std::vector<gpu::SavedFile>& kept = shard_files[steps_done];
  kept.insert(kept.end(), files.begin(), files.end());
}

void CoordinatorState::on_quiesced(plans::WorkerId worker, uint64_t generation,
                                   const net::Quiesced& quiesced) {
  apply(coordination->on_quiesced(worker, generation, quiesced.state_inventory, now_us()));
}

void CoordinatorState::on_heartbeat(plans::PeerNumber peer, const net::Heartbeat& heartbeat) {
  const plans::WorkerId worker = links.find(peer)->worker;
  send(worker, net::HeartbeatAck{heartbeat.sent_us, to_us(self->clock().now())});
  apply(coordination->on_heartbeat(worker, heartbeat.activity, now_us()));
}

void CoordinatorState::on_timings(plans::WorkerId worker, const net::Timings& timings) {
  const plans::ReplicaId replica = timings.replica;
  if (!dropped.note(coordination->on_timings(worker, replica))) return;
  TimingsReport report;
  report.worker = worker;
  report.replica = replica;
  report.stage = plans::stage_of(*coordination->plan(), replica);
  report.step = timings.step + 1;
  report.version = timings.step;
  report.staleness = timings.staleness;
  report.weight_delay = timings.weight_delay;
  report.pipeline = coordination->pipeline_replica_of(replica);
  report.slices = timings.slices;
  self->send(config.observer, std::move(report));
}

void CoordinatorState::on_failed(plans::WorkerId worker, const net::Failed& failed) {
  const absl::Status why =
      failed.bad_input ? absl::DataLossError(failed.reason) : absl::AbortedError(failed.reason);
  apply(failed.stays ? coordination->on_worker_failed(worker, why, now_us())
                     : coordination->on_worker_lost(worker, why, now_us()));
}

void CoordinatorState::on_status_request(plans::PeerNumber peer) {
  net::Status status = status_of(*coordination, now_us());
  status.job = config.options.job_id;
  status.tokens_per_second = tokens_per_second;
  status.term = config.term;
  status.run_folder = config.options.run_folder;
  links.find(peer)->link->send(net::encode(head({}), std::move(status)));
}

}  // namespace skein::actors
