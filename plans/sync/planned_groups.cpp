#include "plans/sync/planned_groups.hpp"

#include <algorithm>
#include <set>

#include "plans/base/check.hpp"

namespace skein::plans {

PlannedGroups::PlannedGroups(PeerRoster& roster)
    : roster_(roster),
      lists_(roster.layout().replica_count()),
      planned_counts_(roster.layout().pipelines) {}

void PlannedGroups::plan(std::span<const uint32_t> pipelines, Starts& starts) {
  SKEIN_CHECK(!pipelines.empty());
  const PipelineLayout& layout = roster_.layout();
  const uint64_t number = next_number_++;
  Planned& group = groups_[number];
  group.pipelines.assign(pipelines.begin(), pipelines.end());
  group.arrived_count.resize(layout.stages);
  group.started.resize(layout.stages);
  group.open_stages = layout.stages;
  std::vector<ReplicaId> arriving;
  for (const uint32_t pipeline : pipelines) {
    ++planned_counts_[pipeline];
    for (uint32_t stage = 0; stage < layout.stages; ++stage) {
      const ReplicaId replica = layout.replica(stage, pipeline);
      lists_[replica.value].groups.push_back(number);
      const bool is_first = lists_[replica.value].groups.size() == 1;
      if (is_first && roster_.is_waiting(replica)) arriving.push_back(replica);
    }
  }
  for (const ReplicaId replica : arriving) arrive(replica, starts);
}

void PlannedGroups::arrive(ReplicaId replica, Starts& starts) {
  List& list = lists_[replica.value];
  if (list.arrived) return;
  SKEIN_CHECK(!list.groups.empty() && roster_.is_waiting(replica)) << replica;
  list.arrived = true;
  const auto group = groups_.find(list.groups.front());
  const uint32_t stage = roster_.layout().stage_of(replica);
  ++group->second.arrived_count[stage];
  start_if_complete(group, stage, starts);
}

void PlannedGroups::start_if_complete(Groups::iterator group, uint32_t stage, Starts& starts) {
  Planned& planned = group->second;
  if (planned.started[stage] || planned.arrived_count[stage] < planned.pipelines.size()) return;
  std::vector<ReplicaId> members;
  for (const uint32_t pipeline : planned.pipelines) {
    members.push_back(roster_.layout().replica(stage, pipeline));
    List& list = lists_[members.back().value];
    list.groups.pop_front();
    list.arrived = false;
  }
  starts.push_back(roster_.start(members));
  planned.started[stage] = true;
  if (--planned.open_stages == 0) groups_.erase(group);
}

void PlannedGroups::leave(uint32_t pipeline, Starts& starts) {
  std::set<uint64_t> left;
  const PipelineLayout& layout = roster_.layout();
  for (uint32_t stage = 0; stage < layout.stages; ++stage) {
    List& list = lists_[layout.replica(stage, pipeline).value];
    if (list.arrived) --groups_.at(list.groups.front()).arrived_count[stage];
    left.insert(list.groups.begin(), list.groups.end());
    list = List{};
  }
  planned_counts_[pipeline] = 0;
  for (const uint64_t number : left) {
    const auto group = groups_.find(number);
    std::erase(group->second.pipelines, pipeline);
    if (group->second.pipelines.empty()) {
      groups_.erase(group);
      continue;
    }
    for (uint32_t stage = 0; stage < layout.stages && groups_.count(number) > 0; ++stage) {
      start_if_complete(group, stage, starts);
    }
  }
}

}  // namespace skein::plans
