#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/coordinator/coordinator.hpp"
#include "net/codec/profile_codec.hpp"

namespace skein::actors {
namespace {

/// Files a stage may report for one checkpoint: model and optimizer, with room for more.
constexpr unsigned kFilesPerShardMax = 64;

const char* phase_text(plans::Coordination::Phase phase) {
  switch (phase) {
    case plans::Coordination::Phase::kGathering:
      return "waiting for workers";
    case plans::Coordination::Phase::kProfiling:
      return "measuring";
    case plans::Coordination::Phase::kHalting:
      return "changing the plan";
    case plans::Coordination::Phase::kPreparing:
      return "preparing";
    case plans::Coordination::Phase::kTraining:
      return "training";
    case plans::Coordination::Phase::kFinishing:
      return "finishing";
    case plans::Coordination::Phase::kEnded:
      return "ended";
  }
  return "";
}

/// "stage 0 layers 0..3 rows 0..8" for each replica of `worker`.
std::vector<std::string> hosted_replicas(const plans::Plan& plan, plans::WorkerId worker) {
  std::vector<std::string> hosted;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plans::LayerRange& layers = plan.stages[s].layers;
    for (const plans::ReplicaPlan& replica : plan.stages[s].replicas) {
      if (replica.worker != worker) continue;
      hosted.push_back(absl::StrCat("stage ", s, " layers ", layers.begin, "..", layers.end,
                                    " rows ", replica.rows.begin, "..", replica.rows.end()));
    }
  }
  return hosted;
}

void fill_worker(net::schema::WorkerStatus::Builder worker, const plans::Member& member,
                 const std::optional<plans::Plan>& plan, uint64_t now_us) {
  worker.setWorker(member.id.value);
  worker.setHostName(member.request.host_name);
  worker.setProcessId(member.request.process_id);
  const std::string& device = member.activity.device;
  worker.setDevice(device.empty() ? member.request.device : device);
  worker.setStepsDone(member.activity.steps_done);
  const uint64_t heard = member.last_heard_us;
  worker.setHeartbeatAgeMs(now_us > heard ? (now_us - heard) / 1000 : 0);
  if (!plan) return;
  const std::vector<std::string> hosted = hosted_replicas(*plan, member.id);
  auto replicas = worker.initReplicas(static_cast<unsigned>(hosted.size()));
  for (unsigned i = 0; i < hosted.size(); ++i) replicas.set(i, hosted[i]);
}

}  // namespace

void CoordinatorState::on_message(const PeerMessage& message) {
  auto peer = peers.find(message.peer);
  if (peer == peers.end()) return;
  const auto envelope = *message.message;
  const auto body = envelope.getBody();
  const plans::WorkerId worker = peer->second.worker;
  using Body = net::schema::Envelope::Body;
  if (body.isJoin()) return on_join(message.peer, body.getJoin());
  if (body.isStatusRequest()) return on_status_request(message.peer);
  if (body.isDrainRequest() && peer->second.role == net::schema::Role::VIEWER) {
    return apply(coordination->on_leave(plans::WorkerId{body.getDrainRequest().getWorker()},
                                        "skein drain", now_us()));
  }
  // The rest is for members, and for the generation in force.
  if (worker.value == 0) return drop(plans::DropReason::kUnknown);
  if (envelope.getTerm() != config.term) return drop(plans::DropReason::kStale);
  if (body.isHeartbeat()) return on_heartbeat(message.peer, body.getHeartbeat());
  if (body.isFailed()) return on_failed(worker, body.getFailed());
  if (body.isProfiled()) return on_profiled(worker, body.getProfiled());
  if (body.isTrouble()) {
    const auto trouble = body.getTrouble();
    return apply(coordination->on_trouble(worker, plans::WorkerId{trouble.getPeer()},
                                          trouble.getReason().cStr(), now_us()));
  }
  if (body.isLeave()) {
    return apply(coordination->on_leave(worker, body.getLeave().getReason().cStr(), now_us()));
  }
  if (envelope.getGeneration() != coordination->generation()) {
    return drop(plans::DropReason::kStale);
  }
  switch (body.which()) {
    case Body::HALTED:
      return on_halted(worker, envelope.getGeneration(), body.getHalted());
    case Body::SNAPSHOT_KEPT: {
      const auto kept = body.getSnapshotKept();
      return apply(coordination->on_snapshot_kept(worker, static_cast<int32_t>(kept.getStage()),
                                                  kept.getStep()));
    }
    case Body::PREPARED:
      return apply(coordination->on_prepared(worker, envelope.getGeneration(), now_us()));
    case Body::RENDEZVOUS:
      return on_rendezvous(worker, message.message);
    case Body::READY:
      return on_ready(worker, body.getReady());
    case Body::REDUCED: {
      const auto reduced = body.getReduced();
      return apply(coordination->on_reduced(worker, plans::ReplicaId{reduced.getReplica()},
                                            reduced.getStep(), reduced.getNormSquared(), now_us()));
    }
    case Body::COMBINED: {
      const auto combined = body.getCombined();
      return apply(coordination->on_combined(worker, plans::ReplicaId{combined.getReplica()},
                                             combined.getNumber(), combined.getOk(), now_us()));
    }
    case Body::VALIDATED: {
      const auto validated = body.getValidated();
      return apply(coordination->on_validated(plans::ReplicaId{validated.getReplica()},
                                              validated.getStep(), validated.getLossSum(),
                                              validated.getLossTokens(), now_us()));
    }
    case Body::SHARD_SAVED:
      return on_shard_saved(body.getShardSaved());
    case Body::TIMINGS:
      return on_timings(worker, body.getTimings());
    default:
      drop(plans::DropReason::kUnexpected);
  }
}

void CoordinatorState::on_join(plans::PeerNumber peer, net::schema::Join::Reader join) {
  if (peers.at(peer).role != net::schema::Role::WORKER) {
    return drop(plans::DropReason::kNotAllowed);
  }
  plans::JoinRequest request;
  request.host_name = join.getHostName().cStr();
  request.process_id = join.getProcessId();
  request.data_address = join.getDataAddress().cStr();
  request.device = join.getDevice().cStr();
  request.speed = join.getSpeed();
  request.previous = plans::WorkerId{join.getPreviousWorker()};
  request.generation = join.getGeneration();
  apply(coordination->on_join(peer, std::move(request), now_us()));
}

void CoordinatorState::on_profiled(plans::WorkerId worker, net::schema::Profiled::Reader profiled) {
  absl::StatusOr<plans::Profile> profile = net::decode_profile(profiled.getProfile());
  if (!profile.ok()) {
    return apply(coordination->on_worker_lost(worker, profile.status(), now_us()));
  }
  plans::MeasuredWorker measured;
  measured.profile = *std::move(profile);
  measured.memory_bytes = static_cast<int64_t>(profiled.getMemoryBytes());
  measured.is_device_memory = profiled.getIsDeviceMemory();
  measured.memory_bytes_max = static_cast<int64_t>(profiled.getMemoryBytesMax());
  for (auto link : profiled.getLinks()) {
    const plans::LinkSpeed speed{link.getBytesPerSecond(), link.getLatencyUs()};
    const bool fits = std::isfinite(speed.bytes_per_second) && speed.bytes_per_second > 0 &&
                      std::isfinite(speed.latency_us) && speed.latency_us >= 0;
    if (fits) measured.links[plans::WorkerId{link.getPeer()}] = speed;
  }
  apply(coordination->on_profiled(worker, std::move(measured), now_us()));
}

void CoordinatorState::on_ready(plans::WorkerId worker, net::schema::Ready::Reader ready) {
  plans::ReadyReport report;
  report.replica = plans::ReplicaId{ready.getReplica()};
  report.step = ready.getStep();
  report.samples = ready.getSamples();
  report.loss_sum = ready.getLossSum();
  report.loss_tokens = ready.getLossTokens();
  report.needs_groups = ready.getNeedsGroups();
  report.norm_squared = ready.getNormSquared();
  report.busy_us = ready.getBusyUs();
  report.step_us = ready.getStepUs();
  report.stash_peak = ready.getStashPeak();
  report.snapshot_us = ready.getSnapshotUs();
  apply(coordination->on_ready(worker, report, now_us()));
}

void CoordinatorState::on_rendezvous(plans::WorkerId from, const net::ControlMessage& message) {
  const auto entry = (*message).getBody().getRendezvous();
  for (const auto& [worker, peer] : peer_of) {
    if (worker == from) continue;
    send(worker, net::make_envelope(head(worker), [&](auto body) { body.setRendezvous(entry); }));
  }
}

void CoordinatorState::on_shard_saved(net::schema::ShardSaved::Reader saved) {
  const std::string error = saved.getError();
  const plans::CoordinatorOutcome outcome = coordination->on_shard_saved(
      static_cast<int32_t>(saved.getStage()), saved.getStep(),
      error.empty() ? absl::OkStatus() : absl::UnavailableError(error), now_us());
  if (outcome.is_dropped() || !error.empty()) {  // Nobody asked for it, or there is nothing.
    if (outcome.is_accepted()) shard_files.erase(saved.getStep());
    apply(outcome);
    return;
  }
  std::vector<gpu::SavedFile>& files = shard_files[saved.getStep()];
  const auto list = saved.getFiles();
  for (unsigned i = 0; i < std::min(list.size(), kFilesPerShardMax); ++i) {
    gpu::SavedFile file{list[i].getName().cStr(), list[i].getBytes(), list[i].getCrc32c(), {}};
    for (auto tensor : list[i].getTensors()) file.tensors.emplace_back(tensor.cStr());
    files.push_back(std::move(file));
  }
  apply(outcome);
}

void CoordinatorState::on_halted(plans::WorkerId worker, uint64_t generation,
                                 net::schema::Halted::Reader halted) {
  const int64_t layers = plans::layer_count(config.options.job.model);
  std::vector<plans::Holding> holdings;
  for (auto each : halted.getHoldings()) {
    const plans::LayerRange range{each.getLayerBegin(), each.getLayerEnd()};
    if (range.begin < range.end && range.end <= layers) {
      holdings.push_back({each.getStep(), range, each.getGeneration()});
    }
  }
  apply(coordination->on_halted(worker, generation, std::move(holdings), now_us()));
}

void CoordinatorState::on_heartbeat(plans::PeerNumber peer,
                                    net::schema::Heartbeat::Reader heartbeat) {
  const Peer& sender = peers.at(peer);
  send(sender.worker, net::make_envelope(head(sender.worker), [&](auto body) {
         auto ack = body.initHeartbeatAck();
         ack.setSentUs(heartbeat.getSentUs());
         ack.setCoordinatorUs(now_us());
       }));
  plans::WorkerActivity activity{heartbeat.getStepsDone(), heartbeat.getAction().cStr(),
                                 heartbeat.getActionUs(), heartbeat.getWorks(),
                                 heartbeat.getDevice().cStr()};
  apply(coordination->on_heartbeat(sender.worker, std::move(activity), now_us()));
}

void CoordinatorState::on_timings(plans::WorkerId worker, net::schema::Timings::Reader timings) {
  const plans::ReplicaId replica{timings.getReplica()};
  if (static_cast<int64_t>(replica.value) >= plans::replica_count(*coordination->plan())) return;
  TimingsReport report;
  report.worker = worker;
  report.replica = replica;
  report.stage = plans::stage_of(*coordination->plan(), replica);
  report.step = timings.getStep() + 1;
  report.version = timings.getStep();
  report.staleness = timings.getStaleness();
  report.column = coordination->pipeline_replica_of(replica);
  for (auto slice : timings.getSlices()) {
    report.slices.push_back({slice.getName().cStr(), slice.getTrack(), slice.getStartUs(),
                             slice.getDurationUs(), slice.getMicrobatch()});
  }
  self->send(config.observer, std::move(report));
}

void CoordinatorState::on_failed(plans::WorkerId worker, net::schema::Failed::Reader failed) {
  const std::string reason = failed.getReason().cStr();
  apply(coordination->on_worker_lost(
      worker, failed.getBadInput() ? absl::DataLossError(reason) : absl::AbortedError(reason),
      now_us()));
}

void CoordinatorState::on_status_request(plans::PeerNumber peer) {
  const auto& members = coordination->members();
  const auto& plan = coordination->plan();
  peers.at(peer).link->send(net::make_envelope(head({}), [&](auto body) {
    auto status = body.initStatus();
    status.setJob(config.options.job_id);
    status.setState(phase_text(coordination->phase()));
    status.setStepsDone(coordination->steps_done());
    status.setStepsTotal(static_cast<uint64_t>(config.options.job.training.steps));
    status.setLoss(coordination->last_loss());
    status.setTokensPerSecond(tokens_per_second);
    status.setGeneration(coordination->generation());
    status.setTerm(config.term);
    status.setRunFolder(config.options.run_folder);
    auto workers = status.initWorkers(static_cast<unsigned>(members.size()));
    unsigned index = 0;
    for (const auto& [id, member] : members) fill_worker(workers[index++], member, plan, now_us());
  }));
}

}  // namespace skein::actors
