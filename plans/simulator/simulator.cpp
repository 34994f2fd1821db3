#include "plans/simulator/simulator.hpp"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/simulator/execution.hpp"

namespace skein::plans {
namespace {

absl::Status check_not_negative(double value_us, const char* name) {
  if (std::isfinite(value_us) && value_us >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("simulation: ", name, " = ", value_us, ": must be a finite number, at least 0"));
}

absl::Status check(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
                   const SimulationOptions& options) {
  if (plan.mode == kTokenMode) {
    return absl::InvalidArgumentError(
        "simulation: nobody follows the lists of a plan of tokens; these are simulated apart");
  }
  SKEIN_RETURN_IF_ERROR(validate(profile));
  SKEIN_RETURN_IF_ERROR(validate(cluster));
  SKEIN_RETURN_IF_ERROR(
      validate(plan, static_cast<int64_t>(profile.layers.size()), profile.tied_bytes > 0));
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      if (replica.worker.value > cluster.devices.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the plan has a worker ", replica.worker.value, " but the cluster only ",
                         cluster.devices.size(), " devices; worker w is device w - 1"));
      }
    }
  }
  if (options.steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("simulation: steps = ", options.steps, ": must be at least 1"));
  }
  SKEIN_RETURN_IF_ERROR(check_not_negative(options.action_overhead_us, "action_overhead_us"));
  SKEIN_RETURN_IF_ERROR(check_not_negative(options.commit_us, "commit_us"));
  return validate(options.scenario, static_cast<int32_t>(cluster.devices.size()));
}

}  // namespace

absl::StatusOr<Simulation> simulate(const Plan& plan, const Profile& profile,
                                    const ClusterSpec& cluster, const SimulationOptions& options) {
  SKEIN_RETURN_IF_ERROR(check(plan, profile, cluster, options));
  FairLinks links(link_capacities(cluster));
  Execution execution(plan, profile, cluster, options, {links});
  Execution* const all[] = {&execution};
  run_executions(all, links, nullptr, [] { return false; });
  return execution.take_result();
}

}  // namespace skein::plans
