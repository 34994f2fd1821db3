#include "plans/sync/allreduce.hpp"

#include <algorithm>

namespace skein::plans {
namespace {

std::vector<ReductionGroup> groups_of(const PipelineLayout& layout) {
  std::vector<ReductionGroup> groups;
  for (uint32_t stage = 0; stage < layout.stages; ++stage) {
    groups.push_back({{stage}, GroupScope::kStage, static_cast<int32_t>(stage), {}});
    for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
      groups.back().members.push_back(layout.replica(stage, pipeline));
    }
  }
  return groups;
}

}  // namespace

AllreducePolicy::AllreducePolicy(const PipelineLayout& layout)
    : AllreducePolicy(groups_of(layout), 0) {}

AllreducePolicy::AllreducePolicy(const std::vector<ReductionGroup>& groups, uint64_t first_step) {
  for (const ReductionGroup& group : groups) {
    for (const ReplicaId member : group.members) {
      member_.resize(std::max<size_t>(member_.size(), member.value + 1));
      member_[member.value].push_back(gatherings_.size());
    }
    gatherings_.push_back({group, first_step, {}});
  }
}

GroupDecisions AllreducePolicy::on_ready(const ReadySignal& signal, uint64_t /*now_us*/) {
  GroupDecisions decisions;
  if (signal.replica.value >= member_.size()) return decisions;
  for (const size_t position : member_[signal.replica.value]) {
    Gathering& gathering = gatherings_[position];
    if (signal.step != gathering.step) continue;
    gathering.ready.insert(signal.replica);
    if (gathering.ready.size() < gathering.group.members.size()) continue;
    decisions.starts.push_back(start(gathering));
    gathering.ready.clear();
    ++gathering.step;
  }
  return decisions;
}

GroupStart AllreducePolicy::start(const Gathering& gathering) {
  GroupStart start;
  start.number = started_count_++;
  start.stage = gathering.group.stage;
  start.group = gathering.group.id;
  for (const ReplicaId member : gathering.group.members) {
    // Gradients are of the mean over the whole batch already: they are only added up.
    start.members.push_back({member, gathering.step, 1});
  }
  return start;
}

}  // namespace skein::plans
