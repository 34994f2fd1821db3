#include "actors/worker/worker.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/microseconds.hpp"
#include "actors/worker/emulation.hpp"
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
      [self](const net::Envelope& message) { self->state.on_control(message); },
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
  plans::JoinRequest join;
  join.host_name = host_name();
  join.process_id = static_cast<uint32_t>(getpid());
  join.data_address = config.plane->address();
  join.device = absl::StrCat(device_spec.type, " x", device_spec.threads);
  join.speed = device_spec.speed;
  join.previous = id();
  join.generation = head.generation;
  link->send(net::encode(unknown, std::move(join)));
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

void WorkerState::on_control(const net::Envelope& message) {
  const net::ControlBody& body = message.body;
  if (ended || message.head.term < head.term) return;
  if (const auto* joined = std::get_if<net::Joined>(&body)) {
    return on_joined(*joined, message.head.term);
  }
  if (const auto* refused = std::get_if<net::Refused>(&body)) {
    return end(
        absl::InvalidArgumentError(absl::StrCat("the coordinator refused us: ", refused->reason)));
  }
  if (joined_us == 0) return;
  if (std::holds_alternative<net::Stop>(body)) return end(absl::OkStatus());
  if (const auto* quiesce = std::get_if<net::Quiesce>(&body)) {
    return on_halt(*quiesce, message.head.generation);
  }
  if (const auto* request = std::get_if<net::ProfileRequest>(&body)) {
    return on_profile_request(*request);
  }
  if (const auto* ack = std::get_if<net::HeartbeatAck>(&body)) return on_heartbeat_ack(*ack);
  if (const auto* wanted = std::get_if<net::Emulate>(&body)) {
    (void)emulate(*wanted, device.get(), *config.plane, addresses);
    return;
  }
  if (message.head.generation == head.generation) on_plan_message(message);
}

/// What belongs to the newest generation.
void WorkerState::on_plan_message(const net::Envelope& message) {
  const net::ControlBody& body = message.body;
  if (const auto* assign = std::get_if<net::Assign>(&body)) return on_assign(*assign);
  if (const auto* entry = std::get_if<net::RendezvousEntry>(&body)) {
    return config.board->deliver(entry->key, entry->value);
  }
  if (plan.generation != head.generation || retiring) return;
  if (std::holds_alternative<net::Start>(body)) return on_start(message);
  const auto* commit = std::get_if<net::Commit>(&body);
  if (commit) on_commit(commit->order);
  const bool is_for_rank =
      commit || std::holds_alternative<net::GroupStart>(body) ||
      std::holds_alternative<net::Claim>(body) || std::holds_alternative<net::CommitUpdate>(body) ||
      std::holds_alternative<net::Average>(body) || std::holds_alternative<net::AbortGroup>(body);
  if (is_for_rank && rank_actor) self->send(*rank_actor, message);
}

void WorkerState::on_joined(const net::Joined& joined, uint64_t term) {
  if (joined_us != 0) return;  // A repeat.
  const bool is_new = head.sender == 0;
  head.sender = joined.worker.value;
  head.term = term;
  joined_us = last_ack_us = now_us();
  if (config.options.fail_point) config.options.fail_point->identify(id());
  if (is_new) {
    run_folder = joined.run_folder;
    absl::StatusOr<plans::JobSpec> parsed = config.options.parse_job(joined.job_config);
    if (!parsed.ok()) return tell_failed(parsed.status());
    job = *std::move(parsed);
    const size_t number = head.sender - 1;
    if (number < job.device.speeds.size()) job.device.speed = job.device.speeds[number];
    if (config.options.change_device) config.options.change_device(job.device);
    device = config.parts.make_device(job.device);
  }
  if (leaves) on_leave({*leaves});
  if (!beats) on_heartbeat();
}

void WorkerState::on_leave(const LeaveRequest& leave) {
  leaves = leave.reason;
  if (head.sender == 0) return end(absl::CancelledError(leave.reason));
  tell(net::Leave{leave.reason});
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
    net::Heartbeat heartbeat;
    heartbeat.activity = {steps_done, activity.action, activity.action_us, activity.works,
                          device ? device->info().name : ""};
    heartbeat.sent_us = now_us();
    tell(std::move(heartbeat));
  }
  self->delayed_send(self, to_duration(job.elastic.heartbeat_interval_seconds),
                     HeartbeatAtom::value);
}

void WorkerState::on_heartbeat_ack(const net::HeartbeatAck& ack) {
  const uint64_t now = now_us();
  last_ack_us = now;
  if (now < ack.sent_us) return;
  // The coordinator answered half a round trip ago.
  const uint64_t middle = ack.sent_us + (now - ack.sent_us) / 2;
  const ClockOffset offset{static_cast<int64_t>(ack.coordinator_us) - static_cast<int64_t>(middle)};
  if (rank_actor) self->send(*rank_actor, offset);
}

void WorkerState::on_profile_request(const net::ProfileRequest& wanted) {
  if (!device) return;
  ProfileWork work;
  std::map<plans::WorkerId, std::string> planes;
  for (const net::Peer& peer : wanted.peers) {
    planes[peer.worker] = peer.data_address;
    if (peer.worker != id()) work.peers.push_back(peer.worker);
  }
  if (links && links->self() == id()) {
    links->set_addresses(std::move(planes));  // Somebody may be measuring just now.
  } else {
    links = net::LinkProbe::open(*config.plane, id(), std::move(planes));
  }
  work.rows = wanted.rows;
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
  plans::MeasuredWorker measured = result.measured;
  std::erase_if(measured.links, [](const auto& each) { return !net::is_link_speed(each.second); });
  tell(std::move(measured));
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
  tell(net::PeerFailure{std::string(why.message()), peer});
}

void WorkerState::tell_failed(const absl::Status& why) {
  tell(net::Failed{std::string(why.message()), plans::is_bad_input(why)});
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
