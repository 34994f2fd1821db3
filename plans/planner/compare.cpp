#include <utility>

#include "plans/base/status_macros.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {
namespace {

absl::Status judge(const Planner& planner, const PlanRequest& request, PlanVerdict& verdict) {
  SKEIN_ASSIGN_OR_RETURN(verdict.pipeline, planner.make_plan(request));
  SKEIN_RETURN_IF_ERROR(check_memory(verdict.pipeline.plan, request.profile, request.cluster));
  SKEIN_ASSIGN_OR_RETURN(verdict.simulation, simulate(verdict.pipeline.plan, request.profile,
                                                      request.cluster, request.simulation));
  return absl::OkStatus();
}

}  // namespace

std::vector<PlanVerdict> compare_planners(const PlanRequest& request) {
  std::vector<PlanVerdict> verdicts;
  for (const Planner& planner : planners()) {
    PlanVerdict verdict;
    verdict.planner = planner.name;
    verdict.status = judge(planner, request, verdict);
    if (!verdict.status.ok()) {
      verdict.pipeline = {};
      verdict.simulation = {};
    }
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

}  // namespace skein::plans
