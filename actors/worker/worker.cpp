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
#include "net/codec/profile_codec.hpp"
#include "plans/base/bad_input.hpp"
#include "plans/base/check.hpp"
#include "plans/base/debug_checks.hpp"

namespace skein::actors {
namespace {

std::string host_name() {
  std::array<char, 256> buffer{};
  if (gethostname(buffer.data(), buffer.size() - 1) != 0) return "unknown";
  return buffer.data();
}

std::chrono::microseconds to_duration(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

/// Another worker, or the way to it, has failed: a new plan mends it.
bool is_of_others(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

Assignment assignment_of(net::schema::Assign::Reader assign, plans::Plan plan) {
  Assignment assignment;
  assignment.plan = std::move(plan);
  for (auto peer : assign.getPeers()) {
    assignment.addresses[plans::WorkerId{peer.getWorker()}] = peer.getDataAddress().cStr();
  }
  assignment.restore.first_step = assign.getFirstStep();
  assignment.restore.from_checkpoint = assign.getFromCheckpoint();
  for (auto move : assign.getMoves()) {
    assignment.restore.moves.push_back({static_cast<int64_t>(move.getLayer()),
                                        plans::WorkerId{move.getFrom()},
                                        plans::WorkerId{move.getTo()}});
  }
  assignment.load_path = assign.getLoadPath().cStr();
  assignment.data_bytes = assign.getDataBytes();
  assignment.data_digest = assign.getDataDigest();
  for (uint32_t keeper : assign.getKeepers()) {
    assignment.keepers.push_back(plans::WorkerId{keeper});
  }
  assignment.state_generation = assign.getStateGeneration();
  return assignment;
}

}  // namespace

Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, WorkerConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.start(std::move(config));
  return {
      [self](const LinkOpened& opened) { self->state.on_link(opened); },
      [self](const net::ControlMessage& message) { self->state.on_control(message); },
      [self](const LinkClosed& closed) { self->state.on_link_closed(closed); },
      [self](const PreparedReplicas& result) { self->state.preparation->on_prepared(result); },
      [self](const StateSent& sent) { self->state.on_state_sent(sent); },
      [self](const ProfileMeasured& result) { self->state.on_measured(result); },
      [self](const GroupFormed& formed) { self->state.preparation->on_formed(formed); },
      [self](const ReplicasRetired& retired) { self->state.on_retired(retired); },
      [self](const ReplicaActivity& activity) { self->state.activity = activity; },
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
  options.trouble = [this](const absl::Status& why) { tell_trouble(why); };
  preparation = std::make_unique<PlanPreparation>(std::move(options), store);
  profiling = std::make_unique<Profiling>(config.plane);
  session = std::make_unique<CoordinatorSession>(config.connect);
  session->connect(config.options.connect_timeout_seconds);
}

uint64_t WorkerState::now_us() const { return to_us(self->clock().now()); }

void WorkerState::on_link(const LinkOpened& opened) {
  if (has_ended() || !session->is_current(opened.attempt)) return opened.link->close();
  session->on_opened(opened.link, now_us());
  if (!beats) on_heartbeat();
  plans::DeviceSpec device_spec = job.device;
  if (config.options.change_device) config.options.change_device(device_spec);
  net::EnvelopeHead unknown;  // What we know of a plan is of an older life, or of none.
  opened.link->send(net::make_envelope(unknown, [&](auto body) {
    auto join = body.initJoin();
    join.setHostName(host_name());
    join.setProcessId(static_cast<uint32_t>(getpid()));
    join.setDataAddress(config.plane->address());
    join.setDevice(absl::StrCat(device_spec.type, " x", device_spec.threads));
    join.setSpeed(device_spec.speed);
    join.setPreviousWorker(session->self().value);
    join.setGeneration(session->generation());
  }));
}

void WorkerState::on_link_closed(const LinkClosed& closed) {
  if (has_ended() || !session->is_current(closed.attempt)) return;
  if (!session->was_member() || !session->has_link()) {  // We were no member, or cannot connect.
    return end(absl::UnavailableError(
        absl::StrCat("lost the coordinator: ", std::string(closed.why.message()))));
  }
  // What runs goes on until it waits for a commit; the coordinator quiesces it when it is back.
  session->connect(job.elastic.coordinator_timeout_seconds);
}

void WorkerState::on_control(const net::ControlMessage& message) {
  const auto envelope = *message;
  const auto body = envelope.getBody();
  if (has_ended() || envelope.getTerm() < session->head().term) return;
  if (body.isJoined()) return on_joined(message);
  if (body.isRefused()) {
    return end(absl::InvalidArgumentError(
        absl::StrCat("the coordinator refused us: ", body.getRefused().getReason().cStr())));
  }
  if (!session->is_joined()) return;
  if (body.isStop()) return end(absl::OkStatus());
  if (body.isHalt()) return on_quiesce(message);
  if (body.isHeartbeatAck()) return on_heartbeat_ack(body.getHeartbeatAck());
  if (body.isProfileRequest()) {
    if (!device) return;
    auto work = profiling->on_request(body.getProfileRequest(), session->self(), job, device);
    if (work) self->send(config.prepare, *std::move(work), PrepareListener(self));
    return;
  }
  if (body.isEmulate()) {
    (void)emulate(body.getEmulate(), device.get(), *config.plane, preparation->addresses());
    return;
  }
  if (envelope.getGeneration() == session->generation()) on_plan_message(message);
}

/// A message of the newest generation.
void WorkerState::on_plan_message(const net::ControlMessage& message) {
  const auto body = (*message).getBody();
  if (body.isAssign()) return on_assign(body.getAssign());
  if (body.isRendezvous()) {
    const auto entry = body.getRendezvous();
    const auto value = entry.getValue();
    config.board->deliver(entry.getKey().cStr(),
                          std::vector<char>(reinterpret_cast<const char*>(value.begin()),
                                            reinterpret_cast<const char*>(value.end())));
    return;
  }
  if (phase != Phase::kPreparing && phase != Phase::kHosting) return;
  if (body.isStart()) return on_start(message);
  if (body.isCommit()) on_commit(body.getCommit());
  const bool is_for_replica = body.isCommit() || body.isLease() || body.isColumnCommit() ||
                              body.isCombine() || body.isDissolve();
  if (is_for_replica && replica_actor) self->send(*replica_actor, message);
}

void WorkerState::on_joined(const net::ControlMessage& message) {
  const auto joined = (*message).getBody().getJoined();
  const bool is_new = !session->was_member();
  const plans::WorkerId own{joined.getWorker()};
  if (!session->on_joined(own, (*message).getTerm(), now_us())) return;  // A repeat.
  if (config.options.fail_point) config.options.fail_point->identify(own);
  if (is_new) {
    run_folder = joined.getRunFolder().cStr();
    absl::StatusOr<plans::JobSpec> parsed = config.options.parse_job(joined.getJobConfig().cStr());
    if (!parsed.ok()) return tell_failed(parsed.status());
    job = *std::move(parsed);
    const size_t number = own.value - 1;
    if (number < job.device.speeds.size()) job.device.speed = job.device.speeds[number];
    if (config.options.change_device) config.options.change_device(job.device);
    absl::StatusOr<std::shared_ptr<gpu::Device>> made = config.parts.make_device(job.device);
    if (!made.ok()) return tell_failed(made.status());
    device = *std::move(made);
  }
  if (leaves) on_leave({*leaves});
  if (!beats) on_heartbeat();
}

void WorkerState::on_quiesce(const net::ControlMessage& message) {
  const uint64_t generation = (*message).getGeneration();
  if (!session->on_generation(generation)) return;  // A repeat.
  preparation->end();
  store.drop_partial();
  config.plane->close_before(generation);
  if (phase == Phase::kQuiescing) return;  // Its end is on its way.
  if (!replica_actor) {
    phase = Phase::kIdle;
    return tell_quiesced();
  }
  phase = Phase::kQuiescing;
  const auto halt = (*message).getBody().getHalt();
  self->send(*replica_actor, RetireReplicas{halt.getCommittedSteps(), halt.getGradientNorm(),
                                            halt.getCommittedGeneration()});
}

void WorkerState::on_retired(const ReplicasRetired& retired) {
  if (phase != Phase::kQuiescing) return;
  phase = Phase::kIdle;
  // An actor ignores a normal exit of another one, and whoever still holds it would keep it.
  self->unlink_from(replica_actor->address());
  self->send_exit(*replica_actor, caf::exit_reason::user_shutdown);
  replica_actor.reset();
  activity = {};
  store.keep_models(retired, preparation->generation_of(retired.steps_done));
  tell_quiesced();
}

void WorkerState::tell_quiesced() {
  reach(config.options.fail_point, FailPlace::kBeforeHalted);
  session->tell([&](auto body) {
    const std::vector<plans::Holding> inventory = store.inventory();
    auto list = body.initHalted().initHoldings(static_cast<unsigned>(inventory.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      list[i].setStep(inventory[i].step);
      list[i].setLayerBegin(static_cast<uint32_t>(inventory[i].layers.begin));
      list[i].setLayerEnd(static_cast<uint32_t>(inventory[i].layers.end));
      list[i].setGeneration(inventory[i].generation);
    }
  });
}

void WorkerState::on_assign(net::schema::Assign::Reader assign) {
  if (phase != Phase::kIdle) return;  // A repeat, or the old plan has not ended.
  absl::StatusOr<plans::Plan> parsed = plans::parse_plan(assign.getPlan().cStr());
  if (!parsed.ok()) return tell_failed(parsed.status());
  if (parsed->generation != session->generation()) return;
  if (absl::Status status = plans::validate(*parsed, job.model); !status.ok()) {
    return tell_failed(status);
  }
  phase = Phase::kPreparing;
  preparation->begin({session->self(), job, device}, assignment_of(assign, *std::move(parsed)));
}

/// The plan is prepared; the Replica waits for its start.
void WorkerState::on_ready() {
  phase = Phase::kHosting;
  if (preparation->hosts_replicas()) {
    ReplicaConfig next;
    preparation->hand_over(next);
    next.shards = config.parts.make_shard_io(
        ShardIoConfig{run_folder, job.optimizer.name, static_cast<int>(next.plan.stages.size()),
                      config.plane, config.options.fail_point});
    next.link = session->link();
    next.head = session->head();
    next.listener = ReplicaListener(self);
    replica_actor = self->spawn<caf::linked>(replica, std::move(next));
  }
  reach(config.options.fail_point, FailPlace::kBeforePrepared);
  session->tell([](auto body) { body.initPrepared(); });
  if constexpr (plans::kDebugChecks) check_invariants();
}

void WorkerState::on_start(const net::ControlMessage& message) {
  store.begin_plan(preparation->first_step());
  steps_done = preparation->first_step();
  if (replica_actor) self->send(*replica_actor, message);
}

void WorkerState::on_commit(net::schema::Commit::Reader commit) {
  steps_done = commit.getStep() + 1;
  store.drop_before(commit.getSnapshotFloor());
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
  session->tell([&](auto body) {
    auto kept = body.initSnapshotKept();
    kept.setStage(static_cast<uint32_t>(taken.stage));
    kept.setStep(taken.state.step);
  });
}

void WorkerState::on_state_sent(const StateSent& sent) {
  if (has_ended() || sent.status.ok()) return;
  store.drop_damaged(job.model);
  if (sent.generation == session->generation()) tell_trouble(sent.status);
}

void WorkerState::on_measured(const ProfileMeasured& result) {
  profiling->on_measured();
  if (has_ended()) return;
  if (!result.status.ok()) return tell_failed(result.status);
  const plans::MeasuredWorker& measured = result.measured;
  session->tell([&](auto body) {
    auto profiled = body.initProfiled();
    net::encode_profile(measured.profile, profiled.initProfile());
    profiled.setMemoryBytes(static_cast<uint64_t>(measured.memory_bytes));
    profiled.setIsDeviceMemory(measured.is_device_memory);
    profiled.setMemoryBytesMax(static_cast<uint64_t>(measured.memory_bytes_max));
    auto list = profiled.initLinks(static_cast<unsigned>(measured.links.size()));
    unsigned index = 0;
    for (const auto& [peer, speed] : measured.links) {
      list[index].setPeer(peer.value);
      list[index].setBytesPerSecond(speed.bytes_per_second);
      list[index++].setLatencyUs(speed.latency_us);
    }
  });
}

void WorkerState::on_leave(const LeaveRequest& leave) {
  leaves = leave.reason;
  if (!session->was_member()) return end(absl::CancelledError(leave.reason));
  session->tell([&](auto body) { body.initLeave().setReason(leave.reason); });
}

void WorkerState::on_heartbeat() {
  beats = !has_ended();
  if (has_ended()) return;
  if (session->is_silent(now_us(), job.elastic.heartbeat_timeout_seconds * 1e6)) {
    // The connection is half open: the coordinator has given us up, or soon will.
    session->connect(job.elastic.coordinator_timeout_seconds);
  }
  if (session->is_joined()) {
    if (replica_actor) self->send(*replica_actor, HeartbeatAtom::value);
    session->tell([&](auto body) {
      auto heartbeat = body.initHeartbeat();
      heartbeat.setStepsDone(steps_done);
      heartbeat.setSentUs(now_us());
      heartbeat.setAction(activity.action);
      heartbeat.setActionUs(activity.action_us);
      heartbeat.setWorks(activity.works);
      if (device) heartbeat.setDevice(device->info().name);
    });
  }
  if constexpr (plans::kDebugChecks) check_invariants();
  self->delayed_send(self, to_duration(job.elastic.heartbeat_interval_seconds),
                     HeartbeatAtom::value);
}

void WorkerState::on_heartbeat_ack(net::schema::HeartbeatAck::Reader ack) {
  const uint64_t now = now_us();
  session->on_answer(now);
  if (now < ack.getSentUs()) return;
  // The coordinator answered half a round trip ago.
  const uint64_t middle = ack.getSentUs() + (now - ack.getSentUs()) / 2;
  const ClockOffset offset{static_cast<int64_t>(ack.getCoordinatorUs()) -
                           static_cast<int64_t>(middle)};
  if (replica_actor) self->send(*replica_actor, offset);
}

void WorkerState::on_fault(const WorkerFault& fault) {
  const auto& addresses = preparation->addresses();
  const auto peer = std::find_if(addresses.begin(), addresses.end(), [&](const auto& each) {
    return each.second == fault.peer_address;
  });
  const bool of_plan = peer != addresses.end();
  // A connection to one that is no neighbour any more.
  if (has_ended() || (!fault.peer_address.empty() && !of_plan)) return;
  if (!is_of_others(fault.why)) return tell_failed(fault.why);
  tell_trouble(fault.why, of_plan ? peer->first : plans::WorkerId{});
}

void WorkerState::tell_trouble(const absl::Status& why, plans::WorkerId peer) {
  session->tell([&](auto body) {
    auto trouble = body.initTrouble();
    trouble.setReason(std::string(why.message()));
    trouble.setPeer(peer.value);
  });
}

void WorkerState::tell_failed(const absl::Status& why) {
  session->tell([&](auto body) {
    auto failed = body.initFailed();
    failed.setReason(std::string(why.message()));
    failed.setBadInput(plans::is_bad_input(why));
  });
  end(why);
}

void WorkerState::end(const absl::Status& status) {
  if (has_ended()) return;
  phase = Phase::kEnded;
  session->close();
  preparation->end();
  config.on_end(status);
}

void WorkerState::check_invariants() const {
  preparation->check_invariants();
  const bool has_plan = phase == Phase::kPreparing || phase == Phase::kHosting;
  SKEIN_CHECK(phase == Phase::kEnded || preparation->has_plan() == has_plan)
      << "phase " << static_cast<int>(phase);
  const bool may_host = phase != Phase::kIdle && phase != Phase::kPreparing;
  SKEIN_CHECK(!replica_actor || may_host) << "a Replica runs in phase " << static_cast<int>(phase);
  SKEIN_CHECK(phase != Phase::kQuiescing || replica_actor) << "nothing retires";
}

}  // namespace skein::actors
