#include "plans/sync/overlapped_average.hpp"

#include <span>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

OverlappedAveragePolicy::OverlappedAveragePolicy(PipelineLayout layout,
                                                 OverlappedAverageOptions options)
    : options_(options), roster_(layout), stages_(layout.stages), ahead_(layout.replica_count()) {
  SKEIN_CHECK(options.local_steps >= 1 && options.ahead_max >= 1)
      << options.local_steps << " " << options.ahead_max;
}

GroupDecisions OverlappedAveragePolicy::on_ready(const ReadySignal& signal, uint64_t /*now_us*/) {
  GroupDecisions decisions;
  if (!roster_.take_ready(signal)) return decisions;
  const ReplicaId replica = signal.replica;
  if (roster_.is_free(replica) || ahead_[replica.value] < options_.ahead_max) {
    go_on(replica, decisions.starts);
  }
  average_if_due(roster_.layout().stage_of(replica), decisions.starts);
  return decisions;
}

/// With its update, whatever it is in.
void OverlappedAveragePolicy::go_on(ReplicaId replica, Starts& starts) {
  starts.push_back(roster_.start(std::span(&replica, 1)));
  ++stages_[roster_.layout().stage_of(replica)].updates;
  ++ahead_[replica.value];
}

/// All who are present are in it: nobody is in another one.
void OverlappedAveragePolicy::average_if_due(uint32_t s, Starts& starts) {
  const PipelineLayout& layout = roster_.layout();
  Stage& stage = stages_[s];
  const uint64_t present = roster_.present_count();
  if (stage.average || present < 2 || stage.updates < options_.local_steps * present) return;
  std::vector<ReplicaId> members;
  for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
    if (roster_.is_present(pipeline)) members.push_back(layout.replica(s, pipeline));
  }
  for (const ReplicaId each : members) ahead_[each.value] = 0;
  GroupStart start = roster_.start(members);
  start.averages_moments = options_.average_moments;
  stage = {.updates = 0, .average = start.number};
  starts.push_back(std::move(start));
}

GroupDecisions OverlappedAveragePolicy::on_group_end(const GroupOutcome& outcome,
                                                     uint64_t /*now_us*/) {
  GroupDecisions decisions;
  const std::vector<ReplicaId> members = roster_.end(outcome);
  if (members.empty()) return decisions;
  const uint32_t stage = roster_.layout().stage_of(members.front());
  stages_[stage].average.reset();
  for (const ReplicaId each : members) {
    if (roster_.is_waiting(each)) go_on(each, decisions.starts);
  }
  average_if_due(stage, decisions.starts);
  return decisions;
}

GroupDecisions OverlappedAveragePolicy::on_membership(const MembershipChange& change,
                                                      uint64_t /*now_us*/) {
  GroupDecisions decisions;
  if (change.joins) {
    roster_.join(change);
    return decisions;
  }
  if (!roster_.leave(change)) return decisions;
  for (uint32_t s = 0; s < stages_.size(); ++s) {
    if (stages_[s].average && !roster_.is_open(*stages_[s].average)) stages_[s].average.reset();
    average_if_due(s, decisions.starts);  // Fewer updates may be enough now.
  }
  return decisions;
}

}  // namespace skein::plans
