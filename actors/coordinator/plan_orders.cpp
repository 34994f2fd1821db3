#include "actors/coordinator/plan_orders.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "plans/base/check.hpp"
#include "plans/collectives/reducer_kind.hpp"

namespace skein::actors {
namespace {

bool may_be_gpu(const std::string& device) {
  return absl::StartsWith(device, "cuda") || absl::StartsWith(device, "auto");
}

bool may_group_devices(const plans::JobSpec& job,
                       const std::map<plans::WorkerId, plans::Member>& members) {
  if (job.comm.backend == "gloo") return false;
  if (job.comm.backend == "nccl" || may_be_gpu(job.device.type)) return true;
  return std::any_of(members.begin(), members.end(),
                     [](const auto& each) { return may_be_gpu(each.second.request.device); });
}

bool exchanges_tensors(const net::Assign& assign, plans::WorkerId worker) {
  return !plans::hosted_by(assign.plan, worker).empty() || !assign.restore.moves.empty() ||
         !assign.snapshot_peers.empty();
}

}  // namespace

plans::PartNeeds part_needs(const plans::JobSpec& job, const plans::ModeList& modes,
                            const plans::Plan& plan,
                            const std::map<plans::WorkerId, plans::Member>& members) {
  const auto reducer = plans::parse_reducer_kind(job.sync.reducer);
  SKEIN_CHECK(reducer.ok()) << reducer.status();  // The job has been validated.
  const plans::ModeEntry& mode = plans::find_mode(modes, plan.mode);
  const bool reduces = mode.reduces_gradients;
  const bool may_group = reduces && mode.follows_lists && may_group_devices(job, members);
  return {*reducer, /*all_of_stage=*/!reduces, may_group};
}

PlanOrders::PlanOrders(const plans::AssignPlan& decision,
                       const std::map<plans::WorkerId, plans::Member>& members,
                       const plans::PartNeeds& needs, net::Assign common)
    : decision_(decision),
      members_(members),
      parts_(decision.plan, needs, decision.snapshot_peers, decision.times),
      common_(std::move(common)) {
  common_.restore = decision.restore;
  common_.restore.moves.clear();
  common_.state_generation = decision.state_generation;
  for (const plans::LayerMove& move : decision.restore.moves) {
    moves_[move.from].push_back(move);
    if (move.to != move.from) moves_[move.to].push_back(move);
  }
}

net::Assign PlanOrders::of(plans::WorkerId worker) const {
  net::Assign assign = common_;
  assign.plan = parts_.of(worker);
  const auto moves = moves_.find(worker);
  if (moves != moves_.end()) assign.restore.moves = moves->second;
  for (const plans::StagePart& stage : assign.plan.stages) {
    const auto number = static_cast<size_t>(stage.stage);
    if (number >= decision_.snapshot_peers.size()) continue;
    const plans::WorkerId peer = decision_.snapshot_peers[number];
    const bool hosts =
        std::any_of(stage.replicas.begin(), stage.replicas.end(),
                    [&](const plans::ReplicaPlan& each) { return each.worker == worker; });
    if (peer.value != 0 && (hosts || peer == worker)) assign.snapshot_peers[stage.stage] = peer;
  }
  if (!exchanges_tensors(assign, worker)) assign.secret = 0;
  assign.peers = peers_of(worker, assign);
  return assign;
}

std::vector<net::Peer> PlanOrders::peers_of(plans::WorkerId worker,
                                            const net::Assign& assign) const {
  std::set<plans::WorkerId> peers;
  for (plans::WorkerId peer : plans::peers_in(assign.plan, worker)) peers.insert(peer);
  for (const auto& [stage, peer] : assign.snapshot_peers) peers.insert(peer);
  for (const plans::LayerMove& move : assign.restore.moves) peers.insert(move.to);
  peers.insert(worker);  // Stages that follow one another may be its own.
  std::vector<net::Peer> result;
  for (plans::WorkerId peer : peers) {
    const auto member = members_.find(peer);
    if (member != members_.end()) result.push_back({peer, member->second.request.data_address});
  }
  return result;
}

}  // namespace skein::actors
