#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/coordinator/coordinator.hpp"

namespace skein::actors {
namespace {

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

net::WorkerStatus status_of(const plans::Member& member, const std::optional<plans::Plan>& plan,
                            uint64_t now_us) {
  net::WorkerStatus status;
  status.worker = member.id;
  status.host_name = member.request.host_name;
  status.process_id = member.request.process_id;
  const std::string& device = member.activity.device;
  status.device = device.empty() ? member.request.device : device;
  status.steps_done = member.activity.steps_done;
  const uint64_t heard = member.last_heard_us;
  status.heartbeat_age_ms = now_us > heard ? (now_us - heard) / 1000 : 0;
  if (plan) status.replicas = hosted_replicas(*plan, member.id);
  return status;
}

}  // namespace

void CoordinatorState::on_message(const PeerMessage& message) {
  auto peer = peers.find(message.peer);
  if (peer == peers.end()) return;
  const net::EnvelopeHead& from = message.message.head;
  const net::ControlBody& body = message.message.body;
  const plans::WorkerId worker = peer->second.worker;
  if (const auto* join = std::get_if<plans::JoinRequest>(&body))
    return on_join(message.peer, *join);
  if (std::holds_alternative<net::StatusRequest>(body)) return on_status_request(message.peer);
  const auto* drain = std::get_if<net::DrainRequest>(&body);
  if (drain && peer->second.role == net::schema::Role::VIEWER) {
    return apply(coordination->on_leave(drain->worker, "skein drain", now_us()));
  }
  // The rest is for members, and for the generation in force.
  if (worker.value == 0) return drop(plans::DropReason::kUnknown);
  if (from.term != config.term) return drop(plans::DropReason::kStale);
  if (const auto* heartbeat = std::get_if<net::Heartbeat>(&body)) {
    return on_heartbeat(message.peer, *heartbeat);
  }
  if (const auto* failed = std::get_if<net::Failed>(&body)) return on_failed(worker, *failed);
  if (const auto* measured = std::get_if<plans::MeasuredWorker>(&body)) {
    return apply(coordination->on_profiled(worker, *measured, now_us()));
  }
  if (const auto* failure = std::get_if<net::PeerFailure>(&body)) {
    return apply(coordination->on_trouble(worker, failure->peer, failure->reason, now_us()));
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
    on_halted(worker, message.head.generation, *quiesced);
  } else if (const auto* kept = std::get_if<net::SnapshotKept>(&body)) {
    apply(coordination->on_snapshot_kept(worker, kept->stage, kept->step));
  } else if (std::holds_alternative<net::Prepared>(body)) {
    apply(coordination->on_prepared(worker, message.head.generation, now_us()));
  } else if (const auto* entry = std::get_if<net::RendezvousEntry>(&body)) {
    on_rendezvous(worker, *entry);
  } else if (const auto* ready = std::get_if<plans::ReadyReport>(&body)) {
    apply(coordination->on_ready(worker, *ready, now_us()));
  } else if (const auto* reduced = std::get_if<net::Reduced>(&body)) {
    apply(coordination->on_reduced(worker, reduced->replica, reduced->step, reduced->norm_squared,
                                   now_us()));
  } else if (const auto* averaged = std::get_if<net::Averaged>(&body)) {
    apply(coordination->on_combined(worker, averaged->replica, averaged->number, averaged->ok,
                                    now_us()));
  } else if (const auto* validated = std::get_if<net::Validated>(&body)) {
    apply(coordination->on_validated(validated->replica, validated->step, validated->loss_sum,
                                     validated->loss_tokens, now_us()));
  } else if (const auto* saved = std::get_if<net::ShardSaved>(&body)) {
    on_shard_saved(*saved);
  } else if (const auto* timings = std::get_if<net::Timings>(&body)) {
    on_timings(worker, *timings);
  } else {
    drop(plans::DropReason::kUnexpected);
  }
}

void CoordinatorState::on_join(plans::PeerNumber peer, const plans::JoinRequest& join) {
  if (peers.at(peer).role != net::schema::Role::WORKER) {
    return drop(plans::DropReason::kNotAllowed);
  }
  apply(coordination->on_join(peer, join, now_us()));
}

void CoordinatorState::on_rendezvous(plans::WorkerId from, const net::RendezvousEntry& entry) {
  for (const auto& [worker, peer] : peer_of) {
    if (worker != from) send(worker, entry);
  }
}

void CoordinatorState::on_shard_saved(const net::ShardSaved& saved) {
  const plans::CoordinatorOutcome outcome = coordination->on_shard_saved(
      saved.stage, saved.step,
      saved.error.empty() ? absl::OkStatus() : absl::UnavailableError(saved.error), now_us());
  if (outcome.is_dropped() || !saved.error.empty()) {  // Nobody asked for it, or there is nothing.
    if (outcome.is_accepted()) shard_files.erase(saved.step);
    return apply(outcome);
  }
  std::vector<gpu::SavedFile>& files = shard_files[saved.step];
  files.insert(files.end(), saved.files.begin(), saved.files.end());
  apply(outcome);
}

void CoordinatorState::on_halted(plans::WorkerId worker, uint64_t generation,
                                 const net::Quiesced& quiesced) {
  const int64_t layers = plans::layer_count(config.options.job.model);
  std::vector<plans::Holding> holdings;
  for (const plans::Holding& each : quiesced.state_inventory) {
    if (each.layers.end <= layers) holdings.push_back(each);
  }
  apply(coordination->on_halted(worker, generation, std::move(holdings), now_us()));
}

void CoordinatorState::on_heartbeat(plans::PeerNumber peer, const net::Heartbeat& heartbeat) {
  const plans::WorkerId worker = peers.at(peer).worker;
  send(worker, net::HeartbeatAck{heartbeat.sent_us, now_us()});
  apply(coordination->on_heartbeat(worker, heartbeat.activity, now_us()));
}

void CoordinatorState::on_timings(plans::WorkerId worker, const net::Timings& timings) {
  const plans::ReplicaId replica = timings.replica;
  if (static_cast<int64_t>(replica.value) >= plans::replica_count(*coordination->plan())) return;
  TimingsReport report;
  report.worker = worker;
  report.replica = replica;
  report.stage = plans::stage_of(*coordination->plan(), replica);
  report.step = timings.step + 1;
  report.version = timings.step;
  report.staleness = timings.staleness;
  report.column = coordination->pipeline_replica_of(replica);
  report.slices = timings.slices;
  self->send(config.observer, std::move(report));
}

void CoordinatorState::on_failed(plans::WorkerId worker, const net::Failed& failed) {
  apply(coordination->on_worker_lost(
      worker,
      failed.bad_input ? absl::DataLossError(failed.reason) : absl::AbortedError(failed.reason),
      now_us()));
}

void CoordinatorState::on_status_request(plans::PeerNumber peer) {
  net::Status status;
  status.job = config.options.job_id;
  status.state = phase_text(coordination->phase());
  status.steps_done = coordination->steps_done();
  status.steps_total = static_cast<uint64_t>(config.options.job.training.steps);
  status.loss = coordination->last_loss();
  status.tokens_per_second = tokens_per_second;
  status.generation = coordination->generation();
  status.term = config.term;
  status.run_folder = config.options.run_folder;
  for (const auto& [id, member] : coordination->members()) {
    status.workers.push_back(status_of(member, coordination->plan(), now_us()));
  }
  peers.at(peer).link->send(net::encode(head({}), std::move(status)));
}

}  // namespace skein::actors
