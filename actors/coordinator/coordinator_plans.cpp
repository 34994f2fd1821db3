// What the coordinator tells workers of plans: what it has to know for one, the halt of the one
// before, who computes what, and that it begins.

#include <utility>

#include "actors/coordinator/coordinator.hpp"
#include "plans/collectives/gradient_buckets.hpp"
#include "plans/plan/column_plan.hpp"
#include "plans/sync/allreduce.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::actors {
namespace {

std::vector<net::Peer> peers_of(
    const std::map<plans::WorkerId, plans::Coordination::Member>& members) {
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
  if (grouping_actor) self->send_exit(*grouping_actor, caf::exit_reason::user_shutdown);
  grouping_actor.reset();
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
  // Members that reduce in buckets begin by themselves: who takes part is in the plan.
  if (decision.plan.in_columns) {
    grouping_actor = self->spawn(grouping,
                                 std::shared_ptr<plans::GroupScheduler>(plans::make_policy(
                                     config.options.job, plans::column_layout(decision.plan))),
                                 decision.plan.generation, GroupingListener(self));
  } else if (plans::bucket_cap_mb(config.options.job) == 0) {
    auto policy =
        std::make_shared<plans::AllreducePolicy>(decision.plan.groups, restore.first_step);
    grouping_actor =
        self->spawn(grouping, std::move(policy), decision.plan.generation, GroupingListener(self));
  }
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
