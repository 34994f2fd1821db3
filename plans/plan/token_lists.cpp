#include "plans/plan/token_lists.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace skein::plans {

void set_token_lists(Plan& plan) {
  std::map<WorkerId, int32_t> ranks;
  for (StagePlan& stage : plan.stages) {
    std::stable_sort(stage.replicas.begin(), stage.replicas.end(),
                     [](const auto& a, const auto& b) { return a.worker < b.worker; });
  }
  number_replicas(plan.stages);
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) ranks[replica.worker] = 0;
  }
  int32_t count = 0;
  for (auto& [worker, rank] : ranks) rank = count++;
  plan.schedule = ScheduleKind::kCustom;
  plan.actions.assign(static_cast<size_t>(count), {});
  auto add = [&](size_t stage, ActionType type) {
    const auto passes = static_cast<int32_t>(passes_of_stage(plan, static_cast<int32_t>(stage)));
    for (ReplicaPlan& replica : plan.stages[stage].replicas) {
      replica.rank = ranks.at(replica.worker);
      ActionList& actions = plan.actions[static_cast<size_t>(replica.rank)];
      for (int32_t token = 0; token < passes; ++token) {
        actions.push_back({static_cast<int32_t>(stage), type, token});
      }
    }
  };
  for (size_t s = 0; s < plan.stages.size(); ++s) add(s, ActionType::kForward);
  for (size_t s = plan.stages.size(); s > 0; --s) add(s - 1, ActionType::kBackward);
}

std::vector<ReductionGroup> token_groups(const std::vector<StagePlan>& stages, bool tied_head) {
  std::vector<ReductionGroup> groups = reduction_groups(stages, tied_head);
  if (groups.size() > stages.size()) groups.back().members = groups.front().members;
  return groups;
}

absl::Status check_token_lists(const Plan& plan) {
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    std::set<WorkerId> seen;
    for (const ReplicaPlan& replica : plan.stages[s].replicas) {
      if (seen.insert(replica.worker).second) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "the plan is broken: worker ", replica.worker.value, " has stage ", s, " twice"));
    }
  }
  Plan other = plan;
  set_token_lists(other);
  if (other == plan) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the plan is broken: its replicas, ranks or lists of actions are not those of its tokens");
}

}  // namespace skein::plans
