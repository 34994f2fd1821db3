#include "plans/collectives/device_groups.hpp"

#include <utility>

namespace skein::plans {

std::vector<WantedGroup> wanted_groups(const Plan& plan, ReducerKind reducer) {
  std::vector<WantedGroup> wanted;
  for (const ReductionGroup& group : plan.groups) {
    if (group.members.size() < 2) continue;
    const bool is_sum = reducer == ReducerKind::kSum || group.scope == GroupScope::kTied;
    WantedGroup& to = wanted.emplace_back();
    to.id = group.id;
    to.use = is_sum ? DeviceUse::kSum : DeviceUse::kOtherReducer;
    for (ReplicaId member : group.members) to.members.push_back(replica_of(plan, member).worker);
  }
  for (size_t front = 0; front + 1 < plan.stages.size(); ++front) {
    // Stages of one rank are on the same workers.
    if (plan.stages[front].rank() == plan.stages[front + 1].rank()) continue;
    WantedGroup& to = wanted.emplace_back();
    to.id = GroupId{static_cast<uint32_t>(plan.groups.size() + front)};
    to.use = DeviceUse::kActivations;
    to.front = static_cast<int32_t>(front);
    for (size_t stage : {front, front + 1}) {
      for (const ReplicaPlan& each : plan.stages[stage].replicas) to.members.push_back(each.worker);
    }
  }
  return wanted;
}

}  // namespace skein::plans
