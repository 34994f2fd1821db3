#include "plans/elastic/reroute.hpp"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::plans {

absl::StatusOr<Plan> reroute(const Plan& current, const std::vector<WorkerId>& workers,
                             const ModelSpec& model, uint64_t generation) {
  const std::set<WorkerId> here(workers.begin(), workers.end());
  Plan plan = current;
  plan.generation = generation;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    std::vector<ReplicaPlan>& replicas = plan.stages[s].replicas;
    const size_t lost = std::erase_if(
        replicas, [&](const ReplicaPlan& replica) { return !here.contains(replica.worker); });
    if (replicas.empty()) {
      return absl::NotFoundError(absl::StrCat("stage ", s, " has lost all its ", lost,
                                              " replicas; its layers need other workers"));
    }
    if (lost == 0) continue;
    const auto count = static_cast<int64_t>(replicas.size());
    for (int64_t r = 0; r < count; ++r) {
      replicas[static_cast<size_t>(r)].rows = even_rows(plan.microbatch_rows, r, count);
    }
  }
  number_replicas(plan.stages);
  plan.groups = reduction_groups(plan.stages, model.tied_head);
  SKEIN_RETURN_IF_ERROR(validate(plan, model));
  return plan;
}

}  // namespace skein::plans
