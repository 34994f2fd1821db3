#include "plans/planner/plan_memory.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace skein::plans {
namespace {

/// The largest sum of the stages' stashes that a list holds at once. `row_bytes` [S].
int64_t peak_row_bytes(const ActionList& actions, const std::vector<int64_t>& row_bytes) {
  int64_t held = 0;
  int64_t peak = 0;
  for (const Action& action : actions) {
    const int64_t own = row_bytes[static_cast<size_t>(action.stage)];
    if (action.type == ActionType::kForward) {
      held += own;
      peak = std::max(peak, held);
    } else if (action.type != ActionType::kBackwardInput) {
      held -= own;
    }
  }
  return peak;
}

}  // namespace

std::vector<WorkerMemory> plan_memory(const Plan& plan, const Profile& profile) {
  std::vector<int64_t> row_bytes;
  for (const StagePlan& stage : plan.stages) {
    row_bytes.push_back(stage_memory(profile, stage.layers, 1, plan.recompute).stash_bytes);
  }
  std::vector<int64_t> peaks;
  for (const ActionList& actions : plan.actions) {
    peaks.push_back(peak_row_bytes(actions, row_bytes));
  }
  std::map<WorkerId, WorkerMemory> by_worker;
  for (const StagePlan& stage : plan.stages) {
    const StageMemory row = stage_memory(profile, stage.layers, 1, plan.recompute);
    for (const ReplicaPlan& replica : stage.replicas) {
      WorkerMemory& memory = by_worker[replica.worker];
      memory.worker = replica.worker;
      memory.state_bytes += row.state_bytes;
      memory.stash_bytes = peaks[static_cast<size_t>(replica.rank)] * replica.rows.count;
      memory.extra_bytes = std::max(memory.extra_bytes, row.extra_bytes * replica.rows.count);
    }
  }
  std::vector<WorkerMemory> memories;
  for (const auto& [worker, memory] : by_worker) memories.push_back(memory);
  return memories;
}

int64_t lacking_bytes(const Plan& plan, const Profile& profile, const ClusterSpec& cluster) {
  int64_t lacking = std::numeric_limits<int64_t>::min();
  for (const WorkerMemory& memory : plan_memory(plan, profile)) {
    const int64_t limit = cluster.devices[memory.worker.value - 1].memory_bytes;
    if (limit > 0) lacking = std::max(lacking, memory.total_bytes() - limit);
  }
  return lacking;
}

}  // namespace skein::plans
