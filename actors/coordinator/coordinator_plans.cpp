// What the coordinator tells workers of plans: what it has to know for one, the halt of the one
// before, who computes what, and that it begins.

#include <utility>

#include "actors/coordinator/coordinator.hpp"

namespace skein::actors {
namespace {

std::vector<net::Peer> peers_of(const std::map<plans::WorkerId, plans::Member>& members) {
  std::vector<net::Peer> peers;
  for (const auto& [id, member] : members) peers.push_back({id, member.request.data_address});
  return peers;
}

}  // namespace

void CoordinatorState::carry_out(const plans::RequestProfile& decision) {
  send(decision.worker, net::ProfileRequest{decision.rows, peers_of(coordination->members())});
}

void CoordinatorState::carry_out(const plans::ReportProfiles& decision) {
  self->send(config.observer, decision);
}

void CoordinatorState::carry_out(const plans::HaltWorker& decision) {
  shard_files.clear();
  net::EnvelopeHead envelope = head(decision.worker);
  envelope.generation = decision.generation;
  send(envelope, net::Quiesce{decision.committed_steps, decision.gradient_norm,
                              decision.committed_generation});
}

void CoordinatorState::carry_out(const plans::AssignPlan& decision) {
  self->send(config.observer, decision);
  self->send(config.journal, decision.plan);
  // Somebody else was lost in the same moment: what follows halts the plan before it was sent.
  if (decision.plan.generation != coordination->generation()) return;
  const plans::RestoreDecision& restore = decision.restore;
  net::Assign assign;
  assign.plan = decision.plan;
  assign.peers = peers_of(coordination->members());
  assign.restore = restore;
  assign.load_path = checkpoint_path;
  assign.data_bytes = config.start.data_bytes;
  assign.data_digest = config.start.data_digest;
  assign.keepers = decision.keepers;
  assign.state_generation = decision.state_generation;
  send_to_all(std::move(assign));
}

void CoordinatorState::carry_out(const plans::StartRun& decision) {
  reach(config.options.fail_point, FailPlace::kBeforeStart);
  const plans::CommitOrder& order = decision.order;
  send_to_all(net::Start{order.validate, order.checkpoint, order.last, order.snapshot});
  tell_progress();
}

}  // namespace skein::actors
