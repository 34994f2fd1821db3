#include "plans/elastic/plan_difference.hpp"

#include <algorithm>
#include <cmath>

namespace skein::plans {
std::map<WorkerId, std::set<int64_t>> layers_of_workers(const Plan& plan) {
  std::map<WorkerId, std::set<int64_t>> layers;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      std::set<int64_t>& own = layers[replica.worker];
      for (int64_t l = stage.layers.begin; l < stage.layers.end; ++l) own.insert(l);
    }
  }
  return layers;
}

PlanDifference change_between(const Plan& before, const Plan& after, const Profile& profile) {
  const std::map<WorkerId, std::set<int64_t>> old_layers = layers_of_workers(before);
  const std::map<WorkerId, std::set<int64_t>> new_layers = layers_of_workers(after);
  PlanDifference change;
  double moved = 0;
  for (const auto& [worker, layers] : new_layers) {
    const auto known = old_layers.find(worker);
    if (known == old_layers.end()) change.joining.push_back(worker);
    for (const int64_t layer : layers) {
      if (known != old_layers.end() && known->second.contains(layer)) continue;
      moved += static_cast<double>(profile.layers[static_cast<size_t>(layer)].parameter_bytes);
    }
  }
  for (const auto& [worker, layers] : old_layers) {
    if (!new_layers.contains(worker)) change.leaving.push_back(worker);
  }
  // Of the state, one share are gradients, which the next step makes anew.
  change.moved_bytes = std::llround(moved * std::max(1.0, profile.state_factor - 1));
  return change;
}

}  // namespace skein::plans
