#include "actors/worker.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/microseconds.hpp"
#include "net/profile_codec.hpp"
#include "plans/base/check.hpp"

namespace skein::actors {
namespace {

/// A collective or a data connection that fails usually means that a neighbour died, of which the
/// coordinator hears on its own; only if it does not within this time, the fault is ours to tell.
constexpr auto kFaultDelay = std::chrono::seconds(2);

std::string host_name() {
  std::array<char, 256> buffer{};
  if (gethostname(buffer.data(), buffer.size() - 1) != 0) return "unknown";
  return buffer.data();
}

std::chrono::microseconds to_duration(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

std::shared_ptr<gpu::Device> make_device(const plans::DeviceSpec& spec) {
  if (spec.type == "sleep") {
    return gpu::make_sleep_device(
        {spec.sleep_forward_us, spec.sleep_backward_us, spec.sleep_update_us}, spec.speed);
  }
  auto device = gpu::make_host_device(static_cast<int32_t>(spec.threads));
  if (spec.speed < 1.0) return gpu::make_slowed_device(std::move(device), spec.speed);
  return device;
}

bool is_bad_input(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status);
}

}  // namespace

Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, WorkerConfig config) {
  self->state.self = self;
  self->state.config = std::move(config);
  return {
      [self](const LinkOpened& opened) { self->state.on_link(opened); },
      [self](const net::ControlMessage& message) { self->state.on_control(message); },
      [self](const LinkClosed& closed) {
        self->state.end(absl::UnavailableError(
            absl::StrCat("lost the coordinator: ", std::string(closed.why.message()))));
      },
      [self](const PreparedReplicas& prepared) { self->state.on_prepared(prepared); },
      [self](const ProfileMeasured& result) { self->state.on_measured(result); },
      [self](const WorkerFault& fault) { self->state.on_fault(fault); },
      [self](HeartbeatAtom) { self->state.on_heartbeat(); },
      [self](EndAtom) { self->state.tell_failed(self->state.fault); },
  };
}

uint64_t WorkerState::now_us() const { return to_us(self->clock().now()); }

void WorkerState::on_link(const LinkOpened& opened) {
  link = opened.link;
  plans::DeviceSpec device_spec;
  if (config.options.change_device) config.options.change_device(device_spec);
  link->send(net::make_envelope(head, [&](auto body) {
    auto join = body.initJoin();
    join.setHostName(host_name());
    join.setProcessId(static_cast<uint32_t>(getpid()));
    join.setDataAddress(config.plane->address());
    join.setDevice(absl::StrCat(device_spec.type, " x", device_spec.threads));
    join.setSpeed(device_spec.speed);
  }));
}

void WorkerState::on_control(const net::ControlMessage& message) {
  const auto envelope = *message;
  const auto body = envelope.getBody();
  if (ended || (head.term != 0 && envelope.getTerm() < head.term)) return;
  if (body.isJoined()) return on_joined(message);
  if (body.isRefused()) {
    return end(absl::InvalidArgumentError(
        absl::StrCat("the coordinator refused us: ", body.getRefused().getReason().cStr())));
  }
  if (body.isStop()) {
    return end(absl::OkStatus());
  }
  if (body.isAssign()) return on_assign(body.getAssign());
  if (body.isProfileRequest()) return on_profile_request(body.getProfileRequest());
  if (body.isRendezvous()) {
    const auto entry = body.getRendezvous();
    const auto value = entry.getValue();
    config.board->deliver(entry.getKey().cStr(),
                          std::vector<char>(reinterpret_cast<const char*>(value.begin()),
                                            reinterpret_cast<const char*>(value.end())));
    return;
  }
  if (body.isHeartbeatAck()) return on_heartbeat_ack(body.getHeartbeatAck());
  if (envelope.getGeneration() != plan.generation) return;
  if (body.isCommit()) steps_done = body.getCommit().getStep() + 1;
  if (body.isGroupStart() || body.isCommit() || body.isStart()) {
    if (rank_actor) self->send(*rank_actor, message);
  }
}

void WorkerState::on_joined(const net::ControlMessage& message) {
  if (head.sender != 0) return;  // A repeat.
  const auto joined = (*message).getBody().getJoined();
  head.sender = joined.getWorker();
  head.term = (*message).getTerm();
  run_folder = joined.getRunFolder().cStr();
  absl::StatusOr<plans::JobSpec> parsed = config.options.parse_job(joined.getJobConfig().cStr());
  if (!parsed.ok()) return tell_failed(parsed.status());
  job = *std::move(parsed);
  const size_t number = head.sender - 1;
  if (number < job.device.speeds.size()) job.device.speed = job.device.speeds[number];
  if (config.options.change_device) config.options.change_device(job.device);
  device = make_device(job.device);
  on_heartbeat();
}

void WorkerState::on_assign(net::schema::Assign::Reader assign) {
  absl::StatusOr<plans::Plan> parsed = plans::parse_plan(assign.getPlan().cStr());
  if (!parsed.ok()) return tell_failed(parsed.status());
  if (parsed->generation <= plan.generation) return;  // A repeat.
  if (absl::Status status = plans::validate(*parsed, job.model); !status.ok()) {
    return tell_failed(status);
  }
  plan = *std::move(parsed);
  head.generation = plan.generation;
  first_step = assign.getFirstStep();
  for (auto peer : assign.getPeers()) {
    addresses[plans::WorkerId{peer.getWorker()}] = peer.getDataAddress().cStr();
  }
  PrepareRequest request;
  request.worker = plans::WorkerId{head.sender};
  request.job = job;
  request.plan = plan;
  request.load_path = assign.getLoadPath().cStr();
  request.data_bytes = assign.getDataBytes();
  request.data_digest = assign.getDataDigest();
  request.bind_host = config.options.bind_address;
  request.board = config.board;
  request.device = device;
  self->send(config.prepare, std::move(request), PrepareListener(self));
}

void WorkerState::on_profile_request(net::schema::ProfileRequest::Reader request) {
  if (profiling || !device || plan.generation > 0) return;
  ProfileWork work;
  std::map<plans::WorkerId, std::string> planes;
  for (auto peer : request.getPeers()) {
    const plans::WorkerId id{peer.getWorker()};
    planes[id] = peer.getDataAddress().cStr();
    if (id.value != head.sender) work.peers.push_back(id);
  }
  if (!links) links = net::LinkProbe::open(*config.plane, plans::WorkerId{head.sender}, planes);
  for (uint32_t rows : request.getRows()) work.rows.push_back(rows);
  if (work.rows.empty()) return;
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
  link->send(net::make_envelope(head, [&](auto body) {
    auto profiled = body.initProfiled();
    net::encode_profile(measured.profile, profiled.initProfile());
    profiled.setMemoryBytes(static_cast<uint64_t>(measured.memory_bytes));
    auto list = profiled.initLinks(static_cast<unsigned>(measured.links.size()));
    unsigned index = 0;
    for (const auto& [peer, speed] : measured.links) {
      list[index].setPeer(peer.value);
      list[index].setBytesPerSecond(speed.bytes_per_second);
      list[index++].setLatencyUs(speed.latency_us);
    }
  }));
}

void WorkerState::on_prepared(const PreparedReplicas& prepared) {
  if (ended) return;
  if (!prepared.status.ok()) return tell_failed(prepared.status);
  if (!prepared.replicas.empty()) spawn_rank(prepared);
  link->send(net::make_envelope(head, [](auto body) { body.initPrepared(); }));
}

void WorkerState::spawn_rank(const PreparedReplicas& prepared) {
  RankConfig rank_config;
  rank_config.job = job;
  rank_config.plan = plan;
  rank_config.first_step = first_step;
  rank_config.replicas = prepared.replicas;
  rank_config.data = prepared.data;
  rank_config.device = device;
  rank_config.shards = self->spawn<caf::linked + caf::detached>(
      shard_io,
      ShardIoConfig{run_folder, job.optimizer.name, static_cast<int>(plan.stages.size())});
  for (const PreparedReplica& parts : prepared.replicas) {
    for (const auto& [group, members] : parts.groups) {
      rank_config.groups[group] =
          self->spawn<caf::linked + caf::detached>(group_io, group, members);
    }
  }
  rank_config.plane = config.plane;
  rank_config.addresses = addresses;
  rank_config.link = link;
  rank_config.head = head;
  rank_config.listener = FaultListener(self);
  rank_actor = self->spawn<caf::linked>(rank, std::move(rank_config));
}

void WorkerState::on_fault(const WorkerFault& new_fault) {
  if (ended || !fault.ok()) return;
  fault = new_fault.why;
  if (is_bad_input(fault) || absl::IsResourceExhausted(fault)) return tell_failed(fault);
  self->delayed_send(self, kFaultDelay, EndAtom::value);
}

void WorkerState::on_heartbeat() {
  if (ended) return;
  link->send(net::make_envelope(head, [&](auto body) {
    auto heartbeat = body.initHeartbeat();
    heartbeat.setStepsDone(steps_done);
    heartbeat.setSentUs(now_us());
  }));
  self->delayed_send(self, to_duration(job.elastic.heartbeat_interval_seconds),
                     HeartbeatAtom::value);
}

void WorkerState::on_heartbeat_ack(net::schema::HeartbeatAck::Reader ack) {
  const uint64_t now = now_us();
  if (now < ack.getSentUs()) return;
  // The coordinator answered half a round trip ago.
  const uint64_t middle = ack.getSentUs() + (now - ack.getSentUs()) / 2;
  const ClockOffset offset{static_cast<int64_t>(ack.getCoordinatorUs()) -
                           static_cast<int64_t>(middle)};
  if (rank_actor) self->send(*rank_actor, offset);
}

void WorkerState::tell_failed(const absl::Status& why) {
  if (ended || !link) return end(why);
  link->send(net::make_envelope(head, [&](auto body) {
    auto failed = body.initFailed();
    failed.setReason(std::string(why.message()));
    failed.setBadInput(is_bad_input(why));
  }));
  end(why);
}

void WorkerState::end(const absl::Status& status) {
  if (ended) return;
  ended = true;
  if (link) link->close();
  config.on_end(status);
}

}  // namespace skein::actors
