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
    case plans::Coordination::Phase::kQuiescing:
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

/// "stage 0 layers 0..3 rows 0..8" for each replica of each worker.
std::map<plans::WorkerId, std::vector<std::string>> hosted_replicas(const plans::Plan& plan) {
  std::map<plans::WorkerId, std::vector<std::string>> hosted;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plans::LayerRange& layers = plan.stages[s].layers;
    for (const plans::ReplicaPlan& replica : plan.stages[s].replicas) {
      hosted[replica.worker].push_back(absl::StrCat("stage ", s, " layers ", layers.begin, "..",
                                                    layers.end, " rows ", replica.rows.begin, "..",
                                                    replica.rows.end()));
    }
  }
  return hosted;
}

net::WorkerStatus status_of(const plans::Member& member, uint64_t now_us) {
  net::WorkerStatus status;
  status.worker = member.id;
  status.host_name = member.request.host_name;
  status.process_id = member.request.process_id;
  const std::string& device = member.activity.device;
  status.device = device.empty() ? member.request.device : device;
  status.steps_done = member.activity.steps_done;
  const uint64_t heard = member.last_heard_us;
  status.heartbeat_age_ms = now_us > heard ? (now_us - heard) / 1000 : 0;
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

WorkerOrders orders_of(const plans::ClaimSamples& decision, const plans::Plan& plan) {
  WorkerOrders orders;
  for (plans::WorkerId worker : workers_of_replica(plan, decision.pipeline)) {
    orders.push_back(
        {worker, net::Claim{decision.step, decision.claim, decision.profile, decision.turn}});
  }
  return orders;
}

WorkerOrders orders_of(const plans::CommitPipeline& decision, const plans::Plan& plan) {
  WorkerOrders orders;
  for (plans::WorkerId worker : workers_of_replica(plan, decision.pipeline)) {
    orders.push_back({worker, plans::UpdateOrder{decision.step, decision.gradient_norm,
                                                 decision.next, decision.profile, decision.turn}});
  }
  return orders;
}

WorkerOrders orders_of(const plans::AverageWeights& decision, const plans::Plan& plan) {
  std::map<plans::ReplicaId, bool> receivers;  // Whether they are non-blocking.
  for (plans::ReplicaId shard : decision.shards) receivers[shard] = false;
  for (const plans::GroupMember& each : decision.members)
    receivers[each.replica] = each.is_nonblocking;
  net::Average average;
  average.number = decision.number;
  average.members = decision.members;
  average.is_global = decision.is_global;
  average.has_server = !decision.shards.empty();
  average.has_group_server = decision.has_group_server;
  average.is_closing = decision.is_closing;
  average.steps_done = decision.steps_done;
  average.staleness = decision.staleness;
  WorkerOrders orders;
  for (const auto& [receiver, is_nonblocking] : receivers) {
    average.replica = receiver;
    average.is_nonblocking = is_nonblocking;
    orders.push_back({worker_of(plan, receiver), average});
  }
  return orders;
}

WorkerOrders orders_of(const plans::AbortGroup& decision, const plans::Plan& plan) {
  WorkerOrders orders;
  for (plans::ReplicaId replica : decision.members) {
    orders.push_back({worker_of(plan, replica), net::AbortGroup{replica, decision.number}});
  }
  return orders;
}

WorkerOrders orders_of(const plans::OrderToken& decision, const plans::Plan& plan) {
  return {{worker_of(plan, decision.order.replica), decision.order}};
}

std::vector<net::Peer> addresses_of(const std::map<plans::WorkerId, plans::Member>& members,
                                    const std::vector<plans::WorkerId>& workers) {
  std::vector<net::Peer> peers;
  for (plans::WorkerId id : workers) {
    const auto member = members.find(id);
    if (member != members.end()) peers.push_back({id, member->second.request.data_address});
  }
  return peers;
}

net::Status status_of(const plans::Coordination& coordination, uint64_t now_us) {
  net::Status status;
  status.state = phase_text(coordination.phase());
  status.steps_done = coordination.steps_done();
  status.steps_total = static_cast<uint64_t>(coordination.options().job.training.steps);
  status.loss = coordination.last_loss();
  status.generation = coordination.generation();
  std::map<plans::WorkerId, std::vector<std::string>> hosted;
  if (coordination.plan()) hosted = hosted_replicas(*coordination.plan());
  for (const auto& [id, member] : coordination.members()) {
    status.workers.push_back(status_of(member, now_us));
    status.workers.back().replicas = std::move(hosted[id]);
  }
  return status;
}

}  // namespace skein::actors
