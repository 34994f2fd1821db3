// What the coordinator tells workers of plans: what it has to know for one, the halt of the one
// before, who computes what, and that it begins.

#include <utility>

#include "actors/coordinator/coordinator.hpp"

namespace skein::actors {
namespace {

void fill_peers(const std::map<plans::WorkerId, plans::Member>& members,
                capnp::List<net::schema::Peer>::Builder to) {
  unsigned index = 0;
  for (const auto& [id, member] : members) {
    to[index].setWorker(id.value);
    to[index++].setDataAddress(member.request.data_address);
  }
}

}  // namespace

void CoordinatorState::carry_out(const plans::RequestProfile& decision) {
  const auto& members = coordination->members();
  send(decision.worker, net::make_envelope(head(decision.worker), [&](auto body) {
         auto request = body.initProfileRequest();
         auto rows = request.initRows(static_cast<unsigned>(decision.rows.size()));
         for (unsigned i = 0; i < rows.size(); ++i) {
           rows.set(i, static_cast<uint32_t>(decision.rows[i]));
         }
         fill_peers(members, request.initPeers(static_cast<unsigned>(members.size())));
       }));
}

void CoordinatorState::carry_out(const plans::ReportProfiles& decision) {
  self->send(config.observer, decision);
}

void CoordinatorState::carry_out(const plans::HaltWorker& decision) {
  shard_files.clear();
  net::EnvelopeHead envelope = head(decision.worker);
  envelope.generation = decision.generation;
  send(decision.worker, net::make_envelope(envelope, [&](auto body) {
         auto halt = body.initHalt();
         halt.setCommittedSteps(decision.committed_steps);
         halt.setGradientNorm(decision.gradient_norm);
         halt.setCommittedGeneration(decision.committed_generation);
       }));
}

void CoordinatorState::carry_out(const plans::AssignPlan& decision) {
  self->send(config.observer, decision);
  self->send(config.journal, decision.plan);
  // Somebody else was lost in the same moment: what follows halts the plan before it was sent.
  if (decision.plan.generation != coordination->generation()) return;
  const plans::RestoreDecision& restore = decision.restore;
  const auto& members = coordination->members();
  send_to_all([&](auto body) {
    auto assign = body.initAssign();
    assign.setPlan(plans::to_text(decision.plan));
    fill_peers(members, assign.initPeers(static_cast<unsigned>(members.size())));
    assign.setFirstStep(restore.first_step);
    assign.setStateGeneration(decision.state_generation);
    assign.setLoadPath(checkpoint_path);
    assign.setDataBytes(config.start.data_bytes);
    assign.setDataDigest(config.start.data_digest);
    assign.setFromCheckpoint(restore.from_checkpoint);
    auto moves = assign.initMoves(static_cast<unsigned>(restore.moves.size()));
    for (unsigned i = 0; i < moves.size(); ++i) {
      moves[i].setLayer(static_cast<uint32_t>(restore.moves[i].layer));
      moves[i].setFrom(restore.moves[i].from.value);
      moves[i].setTo(restore.moves[i].to.value);
    }
    auto keepers = assign.initKeepers(static_cast<unsigned>(decision.keepers.size()));
    for (unsigned i = 0; i < keepers.size(); ++i) keepers.set(i, decision.keepers[i].value);
  });
}

void CoordinatorState::carry_out(const plans::StartRun& decision) {
  reach(config.options.fail_point, FailPlace::kBeforeStart);
  send_to_all([&](auto body) {
    auto start = body.initStart();
    start.setValidate(decision.order.validate);
    start.setCheckpoint(decision.order.checkpoint);
    start.setLast(decision.order.last);
    start.setSnapshot(decision.order.snapshot);
  });
  tell_progress();
}

}  // namespace skein::actors
