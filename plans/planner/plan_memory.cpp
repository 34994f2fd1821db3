#include "plans/planner/plan_memory.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "plans/schedule/continuous_1f1b.hpp"

namespace skein::plans {
namespace {

/// The largest sum of the stages' stashes that a list holds at once. `bytes`: of one, by stage.
int64_t peak_bytes(const ActionList& actions, const std::map<int32_t, int64_t>& bytes) {
  int64_t held = 0;
  int64_t peak = 0;
  for (const Action& action : actions) {
    const int64_t own = bytes.at(action.stage);
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

std::vector<WorkerMemory> plan_memory(const Plan& plan, const Profile& profile,
                                      int64_t claims_in_flight) {
  struct Worker {
    WorkerMemory memory;
    int32_t rank = 0;
    std::map<int32_t, int64_t> stash_bytes;  // What one micro-batch takes, by stage.
  };
  const Continuous1F1B order{static_cast<int32_t>(plan.stages.size()),
                             static_cast<int32_t>(plan.microbatch_count),
                             static_cast<int32_t>(claims_in_flight)};
  std::map<WorkerId, Worker> by_worker;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StageMemory row = stage_memory(profile, plan.stages[s].layers, 1, plan.recompute);
    for (const ReplicaPlan& replica : plan.stages[s].replicas) {
      Worker& worker = by_worker[replica.worker];
      worker.rank = replica.rank;
      worker.stash_bytes[static_cast<int32_t>(s)] = row.stash_bytes * replica.rows.count;
      WorkerMemory& memory = worker.memory;
      memory.worker = replica.worker;
      memory.state_bytes += row.state_bytes;
      memory.extra_bytes = std::max(memory.extra_bytes, row.extra_bytes * replica.rows.count);
      if (claims_in_flight == 1) continue;
      const auto stage = static_cast<int32_t>(s);
      memory.stash_bytes += order.stash_peak(stage) * worker.stash_bytes[stage];
      memory.version_bytes += order.old_versions(stage) * row.version_bytes;
    }
  }
  std::vector<WorkerMemory> memories;
  for (auto& [id, worker] : by_worker) {
    if (claims_in_flight == 1) {
      const ActionList& actions = plan.actions[static_cast<size_t>(worker.rank)];
      worker.memory.stash_bytes = peak_bytes(actions, worker.stash_bytes);
    }
    memories.push_back(worker.memory);
  }
  return memories;
}

int64_t lacking_bytes(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
                      int64_t claims_in_flight) {
  int64_t lacking = std::numeric_limits<int64_t>::min();
  for (const WorkerMemory& memory : plan_memory(plan, profile, claims_in_flight)) {
    const int64_t limit = cluster.devices[memory.worker.value - 1].memory_bytes;
    if (limit > 0) lacking = std::max(lacking, memory.total_bytes() - limit);
  }
  return lacking;
}

}  // namespace skein::plans
