#include "plans/sync/peer_policy.hpp"

namespace skein::plans {

GroupDecisions PeerPolicy::on_ready(const ReadySignal& signal, uint64_t now_us) {
  GroupDecisions decisions;
  if (roster_.take_ready(signal) && roster_.is_free(signal.replica)) {
    on_waiting(signal.replica, now_us, decisions.starts);
  }
  decisions.wake_us = wake_us();
  return decisions;
}

GroupDecisions PeerPolicy::on_timer(uint64_t now_us) {
  GroupDecisions decisions;
  on_due(now_us, decisions.starts);
  decisions.wake_us = wake_us();
  return decisions;
}

GroupDecisions PeerPolicy::on_group_end(const GroupOutcome& outcome, uint64_t now_us) {
  GroupDecisions decisions;
  for (const ReplicaId member : roster_.end(outcome)) {
    on_free(member, now_us, decisions.starts);
    if (roster_.is_waiting(member)) on_waiting(member, now_us, decisions.starts);
  }
  decisions.wake_us = wake_us();
  return decisions;
}

GroupDecisions PeerPolicy::on_membership(const MembershipChange& change, uint64_t now_us) {
  GroupDecisions decisions;
  if (change.joins) {
    if (roster_.join(change)) on_joined(change.pipeline, now_us, decisions.starts);
  } else if (roster_.leave(change)) {
    on_left(change.pipeline, now_us, decisions.starts);
  }
  decisions.wake_us = wake_us();
  return decisions;
}

}  // namespace skein::plans
