#pragma once

#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/plan/plan.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// A plan that may replace the current one, and where it comes from.
struct MitigationCandidate {
  Plan plan;
  std::string origin;
};

/// Plans close to `current` for the speeds of the request, each stage on its devices: rows split
/// anew, also over micro-batches of other sizes that the request allows; the cuts moved as well;
/// and both without `stragglers`, where a stage that has lost all its devices gives its layers to
/// the others. All have the schedule of `current` and fit the memory; none equals `current`, and
/// none comes twice. `current` and the request are valid and fit each other. Cost: the work of six
/// local searches, each bounded.
std::vector<MitigationCandidate> nearby_plans(const Plan& current, const PlanRequest& request,
                                              const std::vector<WorkerId>& stragglers);

/// What `plan_skein` plans with all devices, and without `stragglers`, if it finds a plan; each as
/// it is, and with workers renamed so that more layers stay where they are (`with_layers_kept`).
std::vector<MitigationCandidate> replanned(const Plan& current, const PlanRequest& request,
                                           const std::vector<WorkerId>& stragglers);

}  // namespace skein::plans
