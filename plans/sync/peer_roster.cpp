#include "plans/sync/peer_roster.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/sync/staleness.hpp"

namespace skein::plans {

PeerRoster::PeerRoster(PipelineLayout layout, std::optional<double> decay)
    : layout_(layout),
      decay_(decay),
      peers_(layout.replica_count()),
      present_(layout.pipelines, true),
      present_count_(layout.pipelines) {
  SKEIN_CHECK(layout.pipelines > 0 && layout.stages > 0)
      << layout.pipelines << " " << layout.stages;
}

bool PeerRoster::take_ready(const ReadySignal& signal) {
  if (!layout_.has(signal.replica) || !present_[layout_.pipeline_of(signal.replica)]) return false;
  Peer& peer = peers_[signal.replica.value];
  if (peer.ready || signal.step < peer.next_step) return false;
  peer.version += signal.step + 1 - peer.next_step;
  peer.next_step = signal.step + 1;
  peer.ready = true;
  return true;
}

std::vector<double> PeerRoster::weights(std::span<const ReplicaId> members) const {
  if (!decay_)
    return std::vector<double>(members.size(), 1.0 / static_cast<double>(members.size()));
  std::vector<uint64_t> versions;
  for (const ReplicaId member : members) versions.push_back(peers_[member.value].version);
  return staleness_weights(versions, *decay_);
}

GroupStart PeerRoster::start(std::span<const ReplicaId> members) {
  SKEIN_CHECK(!members.empty());
  GroupStart start;
  start.number = started_count_++;
  start.stage = static_cast<int32_t>(layout_.stage_of(members[0]));
  start.average = members.size() == 1 ? Average::kLocal : Average::kAverageWeights;
  const std::vector<double> weight = weights(members);
  uint64_t newest = 0, oldest = UINT64_MAX;
  for (const ReplicaId member : members) {
    newest = std::max(newest, peers_[member.value].version);
    oldest = std::min(oldest, peers_[member.value].version);
  }
  start.staleness = newest - oldest;
  std::vector<OpenMember> open;
  for (size_t m = 0; m < members.size(); ++m) {
    Peer& peer = peers_[members[m].value];
    SKEIN_CHECK(members.size() == 1 || !peer.group) << members[m] << " is in group " << *peer.group;
    // A non-blocking member (see AdPsgdPolicy) may not have finished a step yet.
    start.members.push_back({members[m], peer.next_step - std::min<uint64_t>(peer.next_step, 1),
                             weight[m], !peer.ready});
    peer.ready = false;
    if (members.size() == 1) continue;
    peer.group = start.number;
    peer.left_group.reset();  // Its weights are those of this group's.
    open.push_back({members[m], newest - peer.version});
    peer.version = newest;
  }
  if (!open.empty()) open_.emplace(start.number, std::move(open));
  return start;
}

std::vector<ReplicaId> PeerRoster::end(const GroupOutcome& outcome) {
  std::vector<ReplicaId> freed;
  auto group = open_.find(outcome.number);
  if (group == open_.end()) return freed;
  for (const OpenMember& member : group->second) {
    Peer& peer = peers_[member.replica.value];
    const bool is_in = peer.group == outcome.number;
    if (!is_in && peer.left_group != outcome.number) continue;
    if (!outcome.ok) peer.version -= member.lag;  // It goes on with what it had.
    (is_in ? peer.group : peer.left_group).reset();
    if (is_in) freed.push_back(member.replica);
  }
  open_.erase(group);
  return freed;
}

bool PeerRoster::is_open(uint64_t number) const {
  const auto group = open_.find(number);
  return group != open_.end() &&
         std::any_of(group->second.begin(), group->second.end(), [&](const OpenMember& member) {
           return peers_[member.replica.value].group == number;
         });
}

bool PeerRoster::leave(const MembershipChange& change) {
  if (change.pipeline >= layout_.pipelines || !present_[change.pipeline]) return false;
  present_[change.pipeline] = false;
  --present_count_;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    Peer& peer = peers_[layout_.replica(stage, change.pipeline).value];
    peer = Peer{.version = peer.version,
                .left_step = peer.next_step,
                .left_group = peer.group ? peer.group : peer.left_group};
  }
  if (present_count_ > 0) return true;
  // The next round begins with the same weights for all.
  std::fill(peers_.begin(), peers_.end(), Peer{});
  open_.clear();
  return true;
}

/// Who comes back within a round has the weights that it left with, and its steps since.
bool PeerRoster::join(const MembershipChange& change) {
  if (change.pipeline >= layout_.pipelines || present_[change.pipeline]) return false;
  present_[change.pipeline] = true;
  ++present_count_;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    Peer& peer = peers_[layout_.replica(stage, change.pipeline).value];
    if (peer.left_step) peer.version += change.step - std::min(change.step, *peer.left_step);
    peer.left_step.reset();
    peer.next_step = change.step;
  }
  return true;
}

}  // namespace skein::plans
