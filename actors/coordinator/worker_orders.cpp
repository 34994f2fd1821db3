#include "actors/coordinator/worker_orders.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

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

std::set<plans::WorkerId> workers_of_replica(const plans::Plan& plan, uint32_t pipeline_replica) {
  std::set<plans::WorkerId> workers;
  for (const plans::StagePlan& stage : plan.stages) {
    workers.insert(stage.replicas.at(pipeline_replica).worker);
  }
  return workers;
}

plans::WorkerId worker_of(const plans::Plan& plan, plans::ReplicaId replica) {
  return plans::replica_of(plan, replica).worker;
}

}  // namespace

WorkerOrders orders_of(const plans::LeaseSamples& decision, const plans::Plan& plan) {
  WorkerOrders orders;
  for (plans::WorkerId worker : workers_of_replica(plan, decision.column)) {
    orders.push_back({worker, net::Claim{decision.step, decision.lease, decision.profile}});
  }
  return orders;
}

WorkerOrders orders_of(const plans::CommitColumn& decision, const plans::Plan& plan) {
  WorkerOrders orders;
  for (plans::WorkerId worker : workers_of_replica(plan, decision.column)) {
    orders.push_back({worker, plans::UpdateOrder{decision.step, decision.gradient_norm,
                                                 decision.next, decision.profile}});
  }
  return orders;
}

WorkerOrders orders_of(const plans::CombineWeights& decision, const plans::Plan& plan) {
  std::map<plans::ReplicaId, bool> receivers;  // Whether they are passive.
  for (plans::ReplicaId shard : decision.shards) receivers[shard] = false;
  for (const plans::GroupMember& each : decision.members) receivers[each.replica] = each.is_passive;
  net::Average average;
  average.number = decision.number;
  average.members = decision.members;
  average.is_global = decision.is_common;
  average.has_server = !decision.shards.empty();
  average.is_closing = decision.is_closing;
  average.steps_done = decision.steps_done;
  average.staleness = decision.staleness;
  WorkerOrders orders;
  for (const auto& [receiver, is_passive] : receivers) {
    average.replica = receiver;
    average.is_passive = is_passive;
    orders.push_back({worker_of(plan, receiver), average});
  }
  return orders;
}

WorkerOrders orders_of(const plans::DissolveGroup& decision, const plans::Plan& plan) {
  WorkerOrders orders;
  for (plans::ReplicaId replica : decision.members) {
    orders.push_back({worker_of(plan, replica), net::AbortGroup{replica, decision.number}});
  }
  return orders;
}

std::vector<net::Peer> addresses_of(const std::map<plans::WorkerId, plans::Member>& members) {
  std::vector<net::Peer> peers;
  for (const auto& [id, member] : members) peers.push_back({id, member.request.data_address});
  return peers;
}

net::Status status_of(const plans::Coordination& coordination, uint64_t now_us) {
  net::Status status;
  status.state = phase_text(coordination.phase());
  status.steps_done = coordination.steps_done();
  status.steps_total = static_cast<uint64_t>(coordination.options().job.training.steps);
  status.loss = coordination.last_loss();
  status.generation = coordination.generation();
  for (const auto& [id, member] : coordination.members()) {
    status.workers.push_back(status_of(member, coordination.plan(), now_us));
  }
  return status;
}

}  // namespace skein::actors
