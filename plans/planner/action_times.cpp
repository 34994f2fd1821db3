#include "plans/planner/action_times.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace skein::plans {
namespace {

/// At least 1: 0 says that a time is not known.
uint64_t whole_us(double time_us) {
  return static_cast<uint64_t>(
      std::llround(std::clamp(time_us, 1.0, static_cast<double>(ActionTimes::kLongestUs))));
}

}  // namespace

std::vector<ActionTimes> action_times(const Plan& plan,
                                      const std::vector<MeasuredWorker>& workers) {
  std::map<WorkerId, const Profile*> profiles;
  for (const MeasuredWorker& worker : workers) profiles[worker.id] = &worker.profile;
  std::vector<ActionTimes> times(plan.stages.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    ActionTimes slowest;
    for (const ReplicaPlan& replica : stage.replicas) {
      const auto found = profiles.find(replica.worker);
      const bool is_known =
          found != profiles.end() && stage.layers.end <= std::ssize(found->second->layers);
      if (!is_known) {
        slowest = {};
        break;
      }
      const LayerTimes own = range_times(*found->second, stage.layers, replica.rows.count);
      slowest.forward_us = std::max(slowest.forward_us, whole_us(own.forward_us));
      const double again_us = plan.recompute ? own.forward_us : 0;
      slowest.backward_input_us =
          std::max(slowest.backward_input_us, whole_us(again_us + own.backward_input_us));
      slowest.backward_weight_us =
          std::max(slowest.backward_weight_us, whole_us(own.backward_weight_us));
    }
    times[s] = slowest;
  }
  return times;
}

}  // namespace skein::plans
