#include "actors/worker/worker.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/microseconds.hpp"
#include "actors/worker/emulation.hpp"
#include "net/codec/profile_codec.hpp"
#include "plans/base/bad_input.hpp"

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

/// Of another worker, or of the way to it: a new plan mends it.
bool is_of_others(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

}  // namespace

Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, WorkerConfig config) {
  self->state.self = self;
  self->state.config = std::move(config);
  self->state.connect(self->state.config.options.connect_timeout_seconds);
  return {
      [self](const LinkOpened& opened) { self->state.on_link(opened); },
      [self](const net::ControlMessage& message) { self->state.on_control(message); },
      [self](const LinkClosed& closed) { self->state.on_link_closed(closed); },
      [self](const PreparedReplicas& result) { self->state.on_prepared(result); },
      [self](const StateSent& sent) {
        WorkerState& state = self->state;
        if (sent.status.ok()) return;
        state.drop_damaged();
        if (sent.generation == state.head.generation) state.tell_trouble(sent.status);
      },
      [self](const ProfileMeasured& result) { self->state.on_measured(result); },
      [self](const GroupFormed& formed) { self->state.on_formed(formed); },
      [self](const RankRetired& retired) { self->state.on_retired(retired); },
      [self](const RankActivity& activity) { self->state.activity = activity; },
      [self](const SnapshotTaken& taken) { self->state.on_snapshot(taken); },
      [self](const StateArrived& arrived) { self->state.on_state(arrived); },
      [self](const WorkerFault& fault) { self->state.on_fault(fault); },
      [self](const LeaveRequest& leave) { self->state.on_leave(leave); },
      [self](HeartbeatAtom) { self->state.on_heartbeat(); },
  };
}

uint64_t WorkerState::now_us() const { return to_us(self->clock().now()); }

void WorkerState::connect(double seconds) {
  link.reset();
  joined_us = 0;
  config.connect(++attempt, seconds);
}

void WorkerState::on_link(const LinkOpened& opened) {
  if (ended || opened.attempt != attempt) return opened.link->close();
  link = opened.link;
  last_ack_us = now_us();  // The answer to what follows may never come, as that to a heartbeat.
  if (!beats) on_heartbeat();
  plans::DeviceSpec device_spec = job.device;
  if (config.options.change_device) config.options.change_device(device_spec);
  net::EnvelopeHead unknown;  // What we know of a plan is of an older life, or of none.
  link->send(net::make_envelope(unknown, [&](auto body) {
    auto join = body.initJoin();
    join.setHostName(host_name());
    join.setProcessId(static_cast<uint32_t>(getpid()));
    join.setDataAddress(config.plane->address());
    join.setDevice(absl::StrCat(device_spec.type, " x", device_spec.threads));
    join.setSpeed(device_spec.speed);
    join.setPreviousWorker(head.sender);
    join.setGeneration(head.generation);
  }));
}

void WorkerState::on_link_closed(const LinkClosed& closed) {
  if (ended || closed.attempt != attempt) return;
  const bool was_member = head.sender != 0;
  const bool could_not_connect = !link;
  if (!was_member || could_not_connect) {
    return end(absl::UnavailableError(
        absl::StrCat("lost the coordinator: ", std::string(closed.why.message()))));
  }
  // What runs goes on until it waits for a commit; the coordinator halts it when it is back.
  connect(job.elastic.coordinator_timeout_seconds);
}

void WorkerState::on_control(const net::ControlMessage& message) {
  const auto envelope = *message;
  const auto body = envelope.getBody();
  if (ended || envelope.getTerm() < head.term) return;
  if (body.isJoined()) return on_joined(message);
  if (body.isRefused()) {
    return end(absl::InvalidArgumentError(
        absl::StrCat("the coordinator refused us: ", body.getRefused().getReason().cStr())));
  }
  if (joined_us == 0) return;
  if (body.isStop()) return end(absl::OkStatus());
  if (body.isHalt()) return on_halt(message);
  if (body.isProfileRequest()) return on_profile_request(body.getProfileRequest());
  if (body.isHeartbeatAck()) return on_heartbeat_ack(body.getHeartbeatAck());
  if (body.isEmulate()) {
    (void)emulate(body.getEmulate(), device.get(), *config.plane, addresses);
    return;
  }
  if (envelope.getGeneration() != head.generation) return;
  if (body.isAssign()) return on_assign(body.getAssign());
  if (body.isRendezvous()) {
    const auto entry = body.getRendezvous();
    const auto value = entry.getValue();
    config.board->deliver(entry.getKey().cStr(),
                          std::vector<char>(reinterpret_cast<const char*>(value.begin()),
                                            reinterpret_cast<const char*>(value.end())));
    return;
  }
  if (plan.generation != head.generation || retiring) return;
  if (body.isStart()) return on_start(message);
  if (body.isCommit()) on_commit(body.getCommit());
  const bool is_for_rank = body.isGroupStart() || body.isCommit() || body.isLease() ||
                           body.isColumnCommit() || body.isCombine() || body.isDissolve();
  if (is_for_rank && rank_actor) self->send(*rank_actor, message);
}

void WorkerState::on_joined(const net::ControlMessage& message) {
  if (joined_us != 0) return;  // A repeat.
  const auto joined = (*message).getBody().getJoined();
  const bool is_new = head.sender == 0;
  head.sender = joined.getWorker();
  head.term = (*message).getTerm();
  joined_us = last_ack_us = now_us();
  if (config.options.fail_point) config.options.fail_point->identify(id());
  if (is_new) {
    run_folder = joined.getRunFolder().cStr();
    absl::StatusOr<plans::JobSpec> parsed = config.options.parse_job(joined.getJobConfig().cStr());
    if (!parsed.ok()) return tell_failed(parsed.status());
    job = *std::move(parsed);
    const size_t number = head.sender - 1;
    if (number < job.device.speeds.size()) job.device.speed = job.device.speeds[number];
    if (config.options.change_device) config.options.change_device(job.device);
    absl::StatusOr<std::shared_ptr<gpu::Device>> made = config.parts.make_device(job.device);
    if (!made.ok()) return tell_failed(made.status());
    device = *std::move(made);
  }
  if (leaves) on_leave({*leaves});
  if (!beats) on_heartbeat();
}

void WorkerState::on_leave(const LeaveRequest& leave) {
  leaves = leave.reason;
  if (head.sender == 0) return end(absl::CancelledError(leave.reason));
  tell([&](auto body) { body.initLeave().setReason(leave.reason); });
}

void WorkerState::on_heartbeat() {
  beats = !ended;
  if (ended) return;
  const double lease_us = job.elastic.heartbeat_timeout_seconds * 1e6;
  if (link && static_cast<double>(now_us() - last_ack_us) > lease_us) {
    // The connection is half open: the coordinator has given us up, or soon will.
    connect(job.elastic.coordinator_timeout_seconds);
  }
  if (joined_us != 0) {
    if (rank_actor) self->send(*rank_actor, HeartbeatAtom::value);
    tell([&](auto body) {
      auto heartbeat = body.initHeartbeat();
      heartbeat.setStepsDone(steps_done);
      heartbeat.setSentUs(now_us());
      heartbeat.setAction(activity.action);
      heartbeat.setActionUs(activity.action_us);
      heartbeat.setWorks(activity.works);
      if (device) heartbeat.setDevice(device->info().name);
    });
  }
  self->delayed_send(self, to_duration(job.elastic.heartbeat_interval_seconds),
                     HeartbeatAtom::value);
}

void WorkerState::on_heartbeat_ack(net::schema::HeartbeatAck::Reader ack) {
  const uint64_t now = now_us();
  last_ack_us = now;
  if (now < ack.getSentUs()) return;
  // The coordinator answered half a round trip ago.
  const uint64_t middle = ack.getSentUs() + (now - ack.getSentUs()) / 2;
  const ClockOffset offset{static_cast<int64_t>(ack.getCoordinatorUs()) -
                           static_cast<int64_t>(middle)};
  if (rank_actor) self->send(*rank_actor, offset);
}

void WorkerState::on_profile_request(net::schema::ProfileRequest::Reader profile) {
  if (!device) return;
  ProfileWork work;
  std::map<plans::WorkerId, std::string> planes;
  for (auto peer : profile.getPeers()) {
    const plans::WorkerId each{peer.getWorker()};
    planes[each] = peer.getDataAddress().cStr();
    if (each != id()) work.peers.push_back(each);
  }
  if (links && links->self() == id()) {
    links->set_addresses(std::move(planes));  // Somebody may be measuring just now.
  } else {
    links = net::LinkProbe::open(*config.plane, id(), std::move(planes));
  }
  for (uint32_t rows : profile.getRows()) work.rows.push_back(rows);
  if (work.rows.empty() || profiling) return;
  profiling = true;
  work.job = job;
  work.device = device;
  work.links = links;
  self->send(config.prepare, std::move(work), PrepareListener(self));
}

void WorkerState::on_measured(const ProfileMeasured& result) {
  profiling = false;
  if (ended) return;
  if (!result.status.ok()) return tell_failed(result.status);
  const plans::MeasuredWorker& measured = result.measured;
  tell([&](auto body) {
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

void WorkerState::on_fault(const WorkerFault& fault) {
  const auto peer = std::find_if(addresses.begin(), addresses.end(), [&](const auto& each) {
    return each.second == fault.peer_address;
  });
  const bool of_plan = peer != addresses.end();
  if (ended || (!fault.peer_address.empty() && !of_plan)) return;  // It is no neighbour any more.
  if (is_of_others(fault.why)) {
    return tell_trouble(fault.why, of_plan ? peer->first : plans::WorkerId{});
  }
  tell_failed(fault.why);
}

void WorkerState::tell_trouble(const absl::Status& why, plans::WorkerId peer) {
  tell([&](auto body) {
    auto trouble = body.initTrouble();
    trouble.setReason(std::string(why.message()));
    trouble.setPeer(peer.value);
  });
}

void WorkerState::tell_failed(const absl::Status& why) {
  tell([&](auto body) {
    auto failed = body.initFailed();
    failed.setReason(std::string(why.message()));
    failed.setBadInput(plans::is_bad_input(why));
  });
  end(why);
}

void WorkerState::end(const absl::Status& status) {
  if (ended) return;
  ended = true;
  if (link) link->close();
  for (const auto& [group, parts] : groups) parts.abort();
  config.on_end(status);
}

}  // namespace skein::actors
