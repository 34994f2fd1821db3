// What is told to pipeline replicas that train apart from each other, and to the planner.

#include <utility>
#include <variant>

#include "actors/coordinator/coordinator.hpp"

namespace skein::actors {

std::set<plans::WorkerId> CoordinatorState::workers_of_column(uint32_t column) const {
  std::set<plans::WorkerId> workers;
  for (const plans::StagePlan& stage : coordination->plan()->stages) {
    workers.insert(stage.replicas.at(column).worker);
  }
  return workers;
}

plans::WorkerId CoordinatorState::worker_of(plans::ReplicaId replica) const {
  return plans::replica_of(*coordination->plan(), replica).worker;
}

void CoordinatorState::carry_out(const plans::LeaseSamples& decision) {
  for (plans::WorkerId worker : workers_of_column(decision.column)) {
    send(worker, net::Claim{decision.step, decision.lease, decision.profile});
  }
}

void CoordinatorState::carry_out(const plans::CommitColumn& decision) {
  for (plans::WorkerId worker : workers_of_column(decision.column)) {
    send(worker,
         net::CommitUpdate{decision.step, decision.gradient_norm, decision.next, decision.profile});
  }
}

void CoordinatorState::carry_out(const plans::CombineWeights& decision) {
  std::map<plans::ReplicaId, bool> receivers;  // Whether they are passive.
  for (plans::ReplicaId shard : decision.shards) receivers[shard] = false;
  for (const plans::GroupMember& each : decision.members) receivers[each.replica] = each.is_passive;
  net::Average average;
  average.number = decision.number;
  average.members = decision.members;
  average.is_common = decision.is_common;
  average.has_server = !decision.shards.empty();
  average.is_closing = decision.is_closing;
  average.steps_done = decision.steps_done;
  average.staleness = decision.staleness;
  for (const auto& [receiver, is_passive] : receivers) {
    average.replica = receiver;
    average.is_passive = is_passive;
    send(worker_of(receiver), average);
  }
}

void CoordinatorState::carry_out(const plans::DissolveGroup& decision) {
  for (plans::ReplicaId replica : decision.members) {
    send(worker_of(replica), net::AbortGroup{replica, decision.number});
  }
}

void CoordinatorState::carry_out(const plans::RequestPlan& decision) {
  self->send(config.planner, decision, PlannerListener(self));
}

}  // namespace skein::actors
