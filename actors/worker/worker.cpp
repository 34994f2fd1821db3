#include "actors/worker/worker.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/end_process.hpp"
#include "actors/microseconds.hpp"
#include "actors/worker/emulation.hpp"
#include "net/address.hpp"
#include "plans/base/bad_input.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/base/units.hpp"
#include "plans/collectives/reducer_kind.hpp"

namespace skein::actors {
namespace {

/// So many coordinators of an older term in a row end a worker.
constexpr int kOlderJoinsMax = 2;
/// Who is told to leave is often killed ten seconds later: it does not wait for a coordinator that
/// is gone, or stopped, as long as others do.
constexpr uint64_t kLeaverPatienceUs = 4'000'000;
/// So many heartbeats without an answer are silence, however rare they are.
constexpr int kUnansweredMin = 3;

/// Whose connection ends so often while its device is still at work for an old plan is let go each
/// time for not quiescing: all others have waited for it.
constexpr int kLossesQuiescingMax = 2;

std::string host_name() {
  std::array<char, 256> buffer{};
  if (gethostname(buffer.data(), buffer.size() - 1) != 0) return "unknown";
  return buffer.data();
}

std::chrono::microseconds to_duration(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * plans::kMicrosecondsPerSecond));
}

/// Another worker, or the way to it, has failed: a new plan mends it.
bool is_of_others(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

}  // namespace

Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, WorkerConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.start(std::move(config));
  return {
      [self](const LinkOpened& opened) { self->state.on_link(opened); },
      [self](const LinkMessage& received) {
        WorkerState& state = self->state;
        if (state.session->is_current(received.attempt)) state.on_control(received.message);
      },
      [self](const LinkClosed& closed) { self->state.on_link_closed(closed); },
      [self](const PreparedReplicas& result) { self->state.preparation->on_prepared(result); },
      [self](const StateSent& sent) { self->state.on_state_sent(sent); },
      [self](const ProfileMeasured& result) { self->state.on_measured(result); },
      [self](const EmergencySaved& saved) { self->state.on_saved(saved); },
      [self](const GroupFormed& formed) { self->state.preparation->on_formed(formed); },
      [self](const ReplicasRetired& retired) { self->state.on_retired(retired); },
      [self](const TextAnswer& answer) { self->state.on_text_answer(answer); },
      [self](const ReplicaActivity& activity) {
        self->state.activity = activity;
        self->state.dropped.add(activity.dropped);
      },
      [self](const SnapshotTaken& taken) { self->state.on_snapshot(taken); },
      [self](const StateArrived& arrived) { self->state.on_state(arrived); },
      [self](const WorkerFault& fault) { self->state.on_fault(fault); },
      [self](const LeaveRequest& leave) { self->state.on_leave(leave); },
      [self](HeartbeatAtom) { self->state.on_heartbeat(); },
  };
}

void WorkerState::start(WorkerConfig new_config) {
  config = std::move(new_config);
  PlanPreparation::Options options;
  options.parts = config.parts;
  options.plane = config.plane;
  options.bind_address = config.options.bind_address;
  options.fail_point = config.options.fail_point;
  options.prepare = [this](PrepareRequest request) {
    self->send(config.prepare, std::move(request), PrepareListener(self));
  };
  options.send_state = [this](SendStateRequest request) {
    self->send(config.prepare, std::move(request), PrepareListener(self));
  };
  const auto form = [this](const auto& io) {
    self->send(io, FormGroup{preparation->plan().generation}, FormListener(self));
  };
  options.form_group = form;
  options.form_link = form;
  options.on_state = [to = Worker(self)](const net::TensorKey& key, net::TensorHandle tensor) {
    caf::anon_send(to, StateArrived{key, std::move(tensor)});
  };
  options.on_ready = [this] { on_ready(); };
  options.fail = [this](const absl::Status& why) { tell_failed(why); };
  options.peer_failure = [this](const absl::Status& why) { tell_peer_failure(why); };
  options.checkpoint_unreadable = [this](const absl::Status& why) {
    session->tell(net::CheckpointUnreadable{std::string(why.message())});
  };
  options.want_layers = [this] { session->tell(net::LayersWanted()); };
  preparation = std::make_unique<PlanPreparation>(std::move(options), store);
  profiling = std::make_unique<Profiling>(config.plane);
  session = std::make_unique<CoordinatorSession>(config.connect);
  session->connect(config.options.connect_timeout_seconds);
}

uint64_t WorkerState::now_us() const { return to_us(self->clock().now()); }

void WorkerState::on_link(const LinkOpened& opened) {
  if (is_over() || !session->is_current(opened.attempt)) return opened.link->close();
  session->on_opened(opened.link, now_us());
  if (!beats) on_heartbeat();
  plans::DeviceSpec device_spec = job.device;
  if (config.options.change_device) config.options.change_device(device_spec);
  plans::JoinRequest join;
  const std::string& given = config.options.host_name;
  join.host_name = given.empty() ? host_name() : given;
  join.process_id = static_cast<uint32_t>(getpid());
  join.data_address = config.plane->address();
  join.device = absl::StrCat(device_spec.type, " x", device_spec.threads);
  join.speed = device_spec.speed;
  join.previous = session->self();
  join.generation = session->generation();
  join.run = session->run();
  join.config_digest = config_digest;
  // What we know of a plan is of an older life, or of none.
  opened.link->send(net::encode({}, join));
}

void WorkerState::on_link_closed(const LinkClosed& closed) {
  if (is_over() || !session->is_current(closed.attempt)) return;
  if (!session->has_link()) {  // It cannot be reached any more, for as long as we try.
    return give_up(absl::UnavailableError(
        absl::StrCat("lost the coordinator: ", std::string(closed.why.message()))));
  }
  // Whoever answers and closes before it has taken us in may be about to start.
  if (!session->was_member()) return session->connect(config.options.connect_timeout_seconds);
  lose_coordinator();
  if (phase == Phase::kQuiescing) ++losses_quiescing;
  if (waits_for_device()) return session->connect_later(now_us());
  session->connect(job.elastic.coordinator_timeout_seconds);
}

bool WorkerState::waits_for_device() const {
  return phase == Phase::kQuiescing && losses_quiescing >= kLossesQuiescingMax;
}

/// What runs goes on until it waits for a commit; the coordinator quiesces it when it is back.
/// There is no next pass until then: other jobs do not wait for one.
void WorkerState::lose_coordinator() {
  session->on_lost(now_us());
  if (share) share->leave();
}

void WorkerState::on_control(const net::Envelope& message) {
  const net::ControlBody& body = message.body;
  if (is_over()) return;
  if (const auto* refused = std::get_if<net::Refused>(&body)) return on_refused(*refused);
  const auto* joined = std::get_if<net::Joined>(&body);
  if (joined && serves_other_than(joined->run)) return on_other_run(joined->run);
  if (message.head.term < session->head().term) {  // Terms of one run: that was seen to.
    if (joined) on_older_coordinator(message.head.term);
    return;
  }
  if (joined) return on_joined(*joined, message.head.term);
  if (!session->is_joined()) return;
  if (const auto* stop = std::get_if<net::Stop>(&body)) {
    if (!stop->keeps_state) return end(failure.value_or(absl::OkStatus()));
    const auto code = failure ? failure->code() : absl::StatusCode::kUnavailable;
    return give_up(absl::Status(
        code, absl::StrCat("the run has ended with steps in no checkpoint: ", stop->reason)));
  }
  if (const auto* order = std::get_if<net::Quiesce>(&body)) {
    return on_quiesce(*order, message.head.generation);
  }
  if (const auto* ack = std::get_if<net::HeartbeatAck>(&body)) return on_heartbeat_ack(*ack);
  if (const auto* request = std::get_if<net::ProfileRequest>(&body)) {
    if (!device) return;
    if (!request->rows.empty()) forget_lack_of_memory();  // It is counted on again, or tries.
    auto work = profiling->on_request(*request, session->self(), job, device);
    if (work) self->send(config.prepare, *std::move(work), PrepareListener(self));
    return;
  }
  if (const auto* order = std::get_if<net::Emulate>(&body)) {
    (void)emulate(*order, device.get(), *config.plane, preparation->addresses());
    return;
  }
  if (on_text(body)) return;
  if (message.head.generation == session->generation()) on_plan_message(message);
}

bool WorkerState::on_text(const net::ControlBody& body) {
  if (const auto* request = std::get_if<plans::TextRequest>(&body)) {
    on_text_request(*request);
    return true;
  }
  const auto* layers = std::get_if<plans::TextLayers>(&body);
  const auto* step = std::get_if<plans::TextStep>(&body);
  if (text_stage && layers) {
    self->send(*text_stage,
               TextAssignment{*layers, session->self(), coordinator_data_address, config.plane});
  }
  if (text_stage && step) self->send(*text_stage, *step);
  return layers || step;
}

void WorkerState::on_text_request(const plans::TextRequest& request) {
  if (!device || phase != Phase::kIdle) return;
  if (share || !config.parts.make_text_stage) {
    return tell_failed(absl::FailedPreconditionError(
        "a worker that serves several jobs draws no text; start another one for that"));
  }
  if (!text_stage) {
    text_stage = config.parts.make_text_stage();
    self->link_to(*text_stage);
  }
  self->send(*text_stage, TextMeasurement{request, job.model, device}, TextListener(self));
}

void WorkerState::on_text_answer(const TextAnswer& answer) {
  if (has_ended()) return;
  if (!answer.status.ok()) return tell_failed(answer.status);
  session->tell(*answer.body);
}

/// A message of the newest generation.
void WorkerState::on_plan_message(const net::Envelope& message) {
  const net::ControlBody& body = message.body;
  if (const auto* assign = std::get_if<net::Assign>(&body)) return on_assign(*assign);
  if (const auto* entry = std::get_if<net::RendezvousEntry>(&body)) {
    return config.store->deliver(entry->key, entry->value);
  }
  if (phase != Phase::kPreparing && phase != Phase::kHosting) return;
  if (std::holds_alternative<net::Start>(body)) return on_start(message);
  if (const auto* commit = std::get_if<plans::CommitOrder>(&body)) on_commit(*commit);
  if (replica_actor) self->send(*replica_actor, message);  // It drops what is not for it.
}

/// Once it may be late news of one that was replaced. Whoever says it again is all there is.
void WorkerState::on_older_coordinator(uint64_t term) {
  if (++older_joins < kOlderJoinsMax || session->is_joined()) return;
  give_up(absl::FailedPreconditionError(absl::StrCat(
      "the coordinator has term ", term, ", and this worker has served term ", session->head().term,
      " of the run: its journal was lost, or is an older copy. Start this worker anew: the run "
      "goes "
      "on from its checkpoint")));
}

void WorkerState::on_refused(const net::Refused& refused) {
  if (!refused.run.empty() && serves_other_than(refused.run)) return on_other_run(refused.run);
  const std::string why = absl::StrCat("the coordinator refused us: ", refused.reason);
  // Who was one of the run is not given to the wrong coordinator: the run may be over.
  give_up(session->was_member() ? absl::UnavailableError(why) : absl::InvalidArgumentError(why));
}

/// Another run's coordinator has taken the place of ours, which may come back: what we hold is our
/// run's, so we keep it and look again, for as long as if nobody answered.
void WorkerState::on_other_run(const std::string& here) {
  session->connect_later(now_us());
  if (!other_run.empty()) return;
  other_run = absl::StrCat("this worker serves run ", session->run(), ", at ",
                           config.options.coordinator_address, " is run ", here);
  if (!config.options.on_waiting) return;
  const double left_s = job.elastic.coordinator_timeout_seconds -
                        session->lost_us(now_us()) * plans::kSecondsPerMicrosecond;
  config.options.on_waiting(
      absl::StrCat(other_run,
                   "; resume the worker's own run at that address, or end this worker and start a "
                   "new one for the run that is there"),
      left_s);
}

void WorkerState::look_again() {
  const double left_s = job.elastic.coordinator_timeout_seconds -
                        session->lost_us(now_us()) * plans::kSecondsPerMicrosecond;
  if (left_s > 0) {
    return waits_for_device() ? session->connect_later(now_us()) : session->connect(left_s);
  }
  if (waits_for_device()) {
    return give_up(absl::DeadlineExceededError(absl::StrCat(
        "the device has not ended what it was at when its plan ended, and ",
        job.elastic.coordinator_timeout_seconds,
        " s (elastic.coordinator_timeout_seconds) are over; look at the device, and start this "
        "worker anew")));
  }
  give_up(absl::UnavailableError(absl::StrCat("lost the coordinator: ", other_run)));
}

/// The coordinator of a run may come back with some keys changed: what trains under the next plan
/// has them.
absl::Status WorkerState::take_config(const net::Joined& joined) {
  SKEIN_ASSIGN_OR_RETURN(plans::JobSpec parsed, config.options.parse_job(joined.job_config));
  const uint64_t digest =
      config.options.digest_job ? config.options.digest_job(parsed) : joined.config_digest;
  if (digest != joined.config_digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job's configuration has digest ", digest, " here and ", joined.config_digest,
        " at the coordinator; run the same release of skein on every machine"));
  }
  if (device) parsed.device = job.device;  // It was made by these keys.
  if (share && parsed.sharing != job.sharing) share->change(parsed.sharing);
  job = std::move(parsed);
  config_digest = digest;
  run_folder = joined.run_folder;
  coordinator_data_address =
      net::reachable_address(joined.data_address, config.options.coordinator_address);
  return absl::OkStatus();
}

void WorkerState::on_joined(const net::Joined& joined, uint64_t term) {
  // A repeat changes nothing.
  if (!session->on_joined(joined.run, joined.worker, term, now_us())) return;
  older_joins = 0;
  if (config.options.fail_point) config.options.fail_point->identify(joined.worker);
  other_run.clear();
  config.plane->identify({joined.run, joined.worker, term});
  if (absl::Status status = take_config(joined); !status.ok()) return tell_failed(status);
  if (!device) {
    const size_t number = joined.worker.value - 1;
    if (number < job.device.speeds.size()) job.device.speed = job.device.speeds[number];
    if (config.options.change_device) config.options.change_device(job.device);
    absl::StatusOr<WorkerDevice> made = config.parts.make_device(job, joined.run);
    if (!made.ok()) return tell_failed(made.status());
    device = made->device;
    share = made->share;
    work = config.parts.spawn_device(device);
  }
  if (leaves) on_leave({*leaves});
  forget_lack_of_memory();
  if (failure) {
    const bool is_input_bad = plans::is_bad_input(*failure);
    session->tell(net::Failed{std::string(failure->message()), is_input_bad, /*stays=*/true});
  }
  if (!beats) on_heartbeat();
}

void WorkerState::on_quiesce(const net::Quiesce& order, uint64_t generation) {
  if (!session->on_generation(generation)) return;           // A repeat.
  steps_done = std::max(steps_done, order.committed_steps);  // The commit itself may not have come.
  preparation->end();
  store.drop_partial();
  config.plane->close_before(generation);
  if (phase == Phase::kQuiescing) return;  // Its end is on its way.
  if (!replica_actor) {
    phase = Phase::kIdle;
    return tell_quiesced();
  }
  phase = Phase::kQuiescing;
  self->send(*replica_actor, RetireReplicas{order.committed_steps, order.gradient_norm,
                                            order.committed_generation});
}

void WorkerState::on_retired(const ReplicasRetired& retired) {
  if (!replica_actor || (phase != Phase::kQuiescing && phase != Phase::kGivingUp)) return;
  losses_quiescing = 0;
  // An actor ignores a normal exit of another one, and whoever still holds it would keep it.
  self->unlink_from(replica_actor->address());
  self->send_exit(*replica_actor, caf::exit_reason::user_shutdown);
  replica_actor.reset();
  activity = {};
  store.keep_models(retired, preparation->generation_of(retired.steps_done));
  if (last_save) return carry_out(last_save->on_device_ended(held_to_save(), now_us()));
  phase = Phase::kIdle;
  tell_quiesced();
}

void WorkerState::tell_quiesced() {
  reach(config.options.fail_point, FailPlace::kBeforeQuiesced);
  session->tell(net::Quiesced{store.inventory()});
}

void WorkerState::on_assign(const net::Assign& assign) {
  if (phase != Phase::kIdle) return;  // A repeat, or the old plan has not ended.
  if (assign.plan.generation != session->generation()) return;
  const plans::ModeList& modes = plans::modes_or_own(config.parts.modes);
  absl::Status status = plans::check_mode(modes, assign.plan.mode);
  if (assign.config_digest != config_digest) {
    status = absl::FailedPreconditionError(
        absl::StrCat("plan ", assign.plan.generation, " is for a configuration of digest ",
                     assign.config_digest, ", and we have ", config_digest));
  }
  const auto reducer = plans::parse_reducer_kind(job.sync.reducer);
  if (status.ok()) status = reducer.status();
  if (status.ok()) status = plans::validate(assign.plan, session->self(), job.model, *reducer);
  for (const auto& [stage, peer] : assign.snapshot_peers) {
    if (status.ok()) status = plans::check_has_stage(assign.plan, stage);
  }
  if (!status.ok()) return tell_failed(status);
  forget_lack_of_memory();
  phase = Phase::kPreparing;
  const plans::ModeEntry& mode = plans::find_mode(modes, assign.plan.mode);
  config.plane->set_plan_secret({assign.plan.generation, assign.secret});
  preparation->begin({session->self(), job, device, work, mode.reduces_gradients,
                      mode.passes_of(job), run_folder, session->run()},
                     assign);
}

/// The plan is prepared; the Replica waits for its start.
void WorkerState::on_ready() {
  phase = Phase::kHosting;
  if (preparation->hosts_replicas()) {
    ReplicaConfig next;
    next.modes = config.parts.modes;
    next.checks_invariants = config.parts.checks_invariants;
    preparation->hand_over(next);
    ShardIoConfig shards;
    shards.run_folder = run_folder;
    shards.run = session->run();
    shards.coordinator_address = coordinator_data_address;
    shards.model = job.model;
    shards.generation = next.plan.generation;
    shards.optimizer = job.optimizer.name;
    shards.shard_count = next.plan.stage_count;
    shards.plane = config.plane;
    shards.fail_point = config.options.fail_point;
    next.shards = config.parts.make_shard_io(std::move(shards));
    next.share = share;
    next.link = session->link();
    next.head = session->head();
    next.listener = ReplicaListener(self);
    replica_actor = self->spawn<caf::linked>(replica, std::move(next));
  }
  reach(config.options.fail_point, FailPlace::kBeforePrepared);
  session->tell(net::Prepared{share ? share->report() : plans::TurnReport()});
  if (config.parts.checks_invariants) check_invariants();
}

void WorkerState::on_start(const net::Envelope& message) {
  store.begin_plan(preparation->first_step());
  steps_done = preparation->first_step();
  if (replica_actor) self->send(*replica_actor, message);
}

void WorkerState::on_commit(const plans::CommitOrder& order) {
  steps_done = order.step + 1;
  store.drop_before(order.snapshot_floor);
}

void WorkerState::on_state(const StateArrived& arrived) {
  if (has_ended()) return;
  const std::optional<SnapshotTaken> whole = preparation->on_layer(arrived);
  if (whole) on_snapshot(*whole);
}

/// A whole snapshot, of our own stage or one that we keep.
void WorkerState::on_snapshot(const SnapshotTaken& taken) {
  // Quiesced meanwhile: the inventory does not list it.
  if (phase != Phase::kPreparing && phase != Phase::kHosting) return;
  store.keep(taken.state, preparation->generation_of(taken.state.step));
  session->tell(net::SnapshotKept{taken.stage, taken.state.step});
}

void WorkerState::on_state_sent(const StateSent& sent) {
  if (has_ended() || sent.status.ok()) return;
  if (!is_of_others(sent.status)) return tell_failed(sent.status);
  store.drop_damaged(job.model);
  if (sent.generation == session->generation()) tell_peer_failure(sent.status);
}

void WorkerState::on_measured(const ProfileMeasured& result) {
  absl::StatusOr<plans::MeasuredWorker> measured = profiling->on_measured(result);
  if (has_ended()) return;
  if (!measured.ok()) return tell_failed(measured.status(), /*is_at_work=*/false);
  std::erase_if(measured->links, [](const auto& each) { return !net::is_link_speed(each.second); });
  session->tell(*std::move(measured));
}

void WorkerState::on_leave(const LeaveRequest& leave) {
  if (!leaves) leaves_since_us = now_us();
  leaves = leave.reason;
  if (!session->was_member()) return end(absl::CancelledError(leave.reason));
  session->tell(net::Leave{leave.reason});
}

/// Nobody is there who could take what it holds. A coordinator that says nothing may only be
/// stopped for a moment: who cannot write what it holds waits until the lease is over, too.
bool WorkerState::has_waited_to_leave() const {
  if (now_us() < leaves_since_us + kLeaverPatienceUs) return false;
  if (!session->is_joined()) return session->lost_us(now_us()) >= kLeaverPatienceUs;
  // It may have been stopped itself, with an answer waiting to be read.
  return may_save() && unanswered >= kUnansweredMin &&
         session->is_silent(now_us(), kLeaverPatienceUs);
}

bool WorkerState::may_save() const {
  return session->was_member() && job.checkpoint.enable && job.device.type != "sleep";
}

void WorkerState::on_heartbeat() {
  beats = !has_ended();
  if (has_ended()) return;
  if (!is_over() && session->is_due(now_us())) look_again();
  if (!is_over() && leaves && has_waited_to_leave()) {
    give_up(absl::UnavailableError(
        absl::StrCat("lost the coordinator, and this worker is to leave: ", *leaves)));
  }
  if (last_save) carry_out(last_save->on_tick(held_to_save(), now_us()));
  if (has_ended()) return;
  if (!is_over() && session->is_silent(now_us(), job.elastic.heartbeat_timeout_seconds *
                                                     plans::kMicrosecondsPerSecond)) {
    // The connection is half open: the coordinator has given us up, or soon will.
    if (session->was_member()) lose_coordinator();
    session->connect(job.elastic.coordinator_timeout_seconds);
  }
  if (session->is_joined()) {
    if (replica_actor) self->send(*replica_actor, HeartbeatAtom::value);
    net::Heartbeat heartbeat;
    heartbeat.sent_us = now_us();
    heartbeat.activity = {steps_done,     activity.action,        activity.action_us,
                          activity.works, activity.awaits_device, device ? device->info().name : "",
                          dropped};
    session->tell(heartbeat);
    ++unanswered;
  }
  if (config.parts.checks_invariants) check_invariants();
  self->delayed_send(self, to_duration(job.elastic.heartbeat_interval_seconds),
                     HeartbeatAtom::value);
}

void WorkerState::on_heartbeat_ack(const net::HeartbeatAck& ack) {
  const uint64_t now = now_us();
  session->on_answer(now);
  unanswered = 0;
  if (now < ack.sent_us) return;
  // The coordinator answered half a round trip ago.
  const uint64_t middle = ack.sent_us + (now - ack.sent_us) / 2;
  const ClockOffset offset{static_cast<int64_t>(ack.coordinator_us) - static_cast<int64_t>(middle)};
  if (replica_actor) self->send(*replica_actor, offset);
}

void WorkerState::on_fault(const WorkerFault& fault) {
  const auto& addresses = preparation->addresses();
  const auto peer = std::find_if(addresses.begin(), addresses.end(), [&](const auto& each) {
    return each.second == fault.peer_address;
  });
  const bool of_plan = peer != addresses.end();
  const bool is_ours = !is_of_others(fault.why);
  if (text_stage && !has_ended() && !is_ours) return tell_peer_failure(fault.why);
  // A connection to one that is no neighbour any more.
  if (has_ended() || (!fault.peer_address.empty() && !of_plan)) return;
  if (fault.no_memory_generation != 0) return on_no_memory(fault);
  if (is_ours) return tell_failed(fault.why);
  if (failure && fault.peer_address.empty()) return;  // It follows from that.
  session->tell(net::PeerFailure{std::string(fault.why.message()),
                                 of_plan ? peer->first : plans::WorkerId{},
                                 of_plan && fault.is_unreachable});
}

/// What the replicas have is whole. The next plan may have smaller tensors.
void WorkerState::on_no_memory(const WorkerFault& fault) {
  if (!text_stage && fault.no_memory_generation != session->generation()) return;
  tell_failed(fault.why, /*is_at_work=*/false);
}

void WorkerState::tell_peer_failure(const absl::Status& why, plans::WorkerId peer) {
  session->tell(net::PeerFailure{std::string(why.message()), peer});
}

/// Whoever cannot read what it is given to read, or has no memory for another plan, for a tensor
/// that comes or to measure, still has what it holds. Whoever has no memory for the first plan may
/// have some for the next, with a smaller part.
void WorkerState::tell_failed(const absl::Status& why, bool is_at_work) {
  if (last_save) return;  // Nobody listens, and what is held is being written.
  const bool lacks_memory = absl::IsResourceExhausted(why) && !(replica_actor && is_at_work);
  const bool holds_state = replica_actor || !store.held().empty();
  const bool may_fit = lacks_memory && (holds_state || phase == Phase::kPreparing);
  const bool may_give = plans::is_bad_input(why) && holds_state;
  const bool stays = session->was_member() && (may_fit || may_give);
  if (failure && stays) return;  // It has been told.
  session->tell(net::Failed{std::string(why.message()), plans::is_bad_input(why), stays});
  if (!stays) return end(why);
  failure = why;
}

/// There may be enough for the plan that comes.
void WorkerState::forget_lack_of_memory() {
  if (failure && absl::IsResourceExhausted(*failure)) failure.reset();
}

/// The coordinator is gone for good. What is held outlives us if we see the run folder.
void WorkerState::give_up(const absl::Status& why) {
  if (!may_save()) return end(why);
  plans::LastSave::Options options;
  options.why = why;
  options.patience_seconds = job.elastic.coordinator_timeout_seconds;
  options.leaves = leaves.has_value();
  options.steps_done = steps_done;
  options.is_device_at_work = replica_actor.has_value();
  options.is_device_late = waits_for_device();
  session->close();
  preparation->end();
  // No step is committed but those that we have heard of.
  const bool retires = phase == Phase::kQuiescing;  // Its end is on its way.
  if (replica_actor && !retires) self->send(*replica_actor, RetireReplicas{steps_done, 0, 0});
  phase = Phase::kGivingUp;
  last_save.emplace(std::move(options), now_us());
  carry_out(last_save->begin(held_to_save(), now_us()));
}

plans::LastSave::Held WorkerState::held_to_save() const {
  plans::LastSave::Held held;
  for (const HeldState& each : store.held()) {
    if (is_ahead(each)) continue;
    (each.model == nullptr ? held.has_copies : held.has_models) = true;
    if (each.model == nullptr && each.step == steps_done) held.is_newest_copied = true;
  }
  return held;
}

void WorkerState::carry_out(const plans::LastSave::Decision& decision) {
  if (decision.announces) {
    self->send(config.prepare, EmergencyComing{run_folder, session->run(), session->self(),
                                               steps_done, preparation->generation_of(steps_done)});
  }
  if (decision.saves) save(*decision.saves);
  if (decision.ends) end(decision.ends->status, decision.ends->is_at_work);
}

void WorkerState::save(plans::LastSave::Part part) {
  EmergencyRequest request;
  request.run_folder = run_folder;
  request.run = session->run();
  request.worker = session->self();
  request.job = job;
  request.data_bytes = preparation->assignment().data_bytes;
  request.data_digest = preparation->assignment().data_digest;
  for (const HeldState& each : store.held()) {
    const bool is_of_part = part == plans::LastSave::Part::kAll || each.model == nullptr;
    if (is_of_part && !is_ahead(each)) request.held.push_back(each);
  }
  self->send(config.prepare, std::move(request), PrepareListener(self));
}

void WorkerState::on_saved(const EmergencySaved& saved) {
  if (last_save) carry_out(last_save->on_saved(saved, held_to_save(), now_us()));
}

void WorkerState::end(const absl::Status& status) { end(status, phase == Phase::kQuiescing); }

void WorkerState::end(const absl::Status& status, bool is_at_work) {
  if (has_ended()) return;
  phase = Phase::kEnded;
  if (share) share->leave();
  session->close();
  preparation->end();
  config.on_end(status, is_at_work);
}

void WorkerState::check_invariants() const {
  preparation->check_invariants();
  const bool has_plan = phase == Phase::kPreparing || phase == Phase::kHosting;
  SKEIN_CHECK(phase == Phase::kEnded || preparation->has_plan() == has_plan)
      << "phase " << static_cast<int>(phase);
  const bool may_host = phase != Phase::kIdle && phase != Phase::kPreparing;
  SKEIN_CHECK(!replica_actor || may_host) << "a Replica runs in phase " << static_cast<int>(phase);
  SKEIN_CHECK(phase != Phase::kQuiescing || replica_actor) << "nothing retires";
  SKEIN_CHECK(phase != Phase::kGivingUp || last_save) << "nothing is saved";
}

}  // namespace skein::actors
