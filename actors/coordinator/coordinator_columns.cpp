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
    send(worker, net::make_envelope(head(worker), [&](auto body) {
           auto lease = body.initLease();
           lease.setStep(decision.step);
           lease.setFirstSample(decision.lease.first);
           lease.setSampleCount(decision.lease.count);
           lease.setProfile(decision.profile);
         }));
  }
}

void CoordinatorState::carry_out(const plans::CommitColumn& decision) {
  for (plans::WorkerId worker : workers_of_column(decision.column)) {
    send(worker, net::make_envelope(head(worker), [&](auto body) {
           auto commit = body.initColumnCommit();
           commit.setStep(decision.step);
           commit.setGradientNorm(decision.gradient_norm);
           if (decision.next) {
             commit.setNextSample(decision.next->first);
             commit.setNextCount(decision.next->count);
           }
           commit.setProfile(decision.profile);
         }));
  }
}

void CoordinatorState::carry_out(const plans::CombineWeights& decision) {
  const auto count = static_cast<unsigned>(decision.members.size());
  std::map<plans::ReplicaId, bool> receivers;  // Whether they are passive.
  for (plans::ReplicaId shard : decision.shards) receivers[shard] = false;
  for (const plans::GroupMember& each : decision.members) receivers[each.replica] = each.is_passive;
  for (const auto& [receiver, is_passive] : receivers) {
    const plans::WorkerId worker = worker_of(receiver);
    send(worker, net::make_envelope(head(worker), [&](auto body) {
           auto combine = body.initCombine();
           combine.setReplica(receiver.value);
           combine.setNumber(decision.number);
           combine.setPassive(is_passive);
           combine.setServer(!decision.shards.empty());
           combine.setClosing(decision.is_closing);
           combine.setCommon(decision.is_common);
           combine.setStepsDone(decision.steps_done);
           combine.setStaleness(decision.staleness);
           auto members = combine.initMembers(count);
           for (unsigned i = 0; i < count; ++i) {
             members[i].setReplica(decision.members[i].replica.value);
             members[i].setWeight(decision.members[i].weight);
           }
         }));
  }
}

void CoordinatorState::carry_out(const plans::DissolveGroup& decision) {
  for (plans::ReplicaId replica : decision.members) {
    const plans::WorkerId worker = worker_of(replica);
    send(worker, net::make_envelope(head(worker), [&](auto body) {
           auto dissolve = body.initDissolve();
           dissolve.setReplica(replica.value);
           dissolve.setNumber(decision.number);
         }));
  }
}

void CoordinatorState::carry_out(const plans::RequestPlan& decision) {
  self->send(config.planner, decision, PlannerListener(self));
}

}  // namespace skein::actors
