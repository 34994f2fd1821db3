#include <optional>
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

PlanVerdict verdict_of(const Planner& planner, const PlanRequest& request) {
  PlanVerdict verdict;
  verdict.planner = planner.name;
  verdict.status = judge(planner, request, verdict);
  if (!verdict.status.ok()) {
    verdict.pipeline = {};
    verdict.simulation = {};
  }
  return verdict;
}

/// The best that it plans with any one of the choices of rows: it takes the micro-batch as given.
PlanVerdict best_of_rows(const Planner& planner, const PlanRequest& request) {
  std::optional<PlanVerdict> best;
  for (const int64_t rows : request.microbatch_rows) {
    PlanRequest given = request;
    given.microbatch_rows = {rows};
    PlanVerdict verdict = verdict_of(planner, given);
    const bool is_better =
        !best || (verdict.status.ok() &&
                  (!best->status.ok() || verdict.simulation.step_us < best->simulation.step_us));
    if (is_better) best = std::move(verdict);
  }
  return best ? *std::move(best) : verdict_of(planner, request);
}

}  // namespace

PlanVerdict planner_verdict(const Planner& planner, const PlanRequest& request) {
  return planner.chooses_rows ? verdict_of(planner, request) : best_of_rows(planner, request);
}

std::vector<PlanVerdict> compare_planners(const PlanRequest& request) {
  std::vector<PlanVerdict> verdicts;
  for (const Planner& planner : planners()) {
    verdicts.push_back(planner_verdict(planner, request));
  }
  return verdicts;
}

}  // namespace skein::plans
