#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/config/planning_inputs.hpp"
#include "plans/plan/plan.hpp"

namespace skein::cli {

/// `skein simulate JOB CLUSTER --beside OTHER`.
struct SharedArguments {
  std::vector<std::string> beside;  // Job files; empty: the job has the devices for itself.
  std::vector<std::string> plans;   // A plan.txt for each of them; empty: plan first.
};

/// Prints what becomes of jobs that share the cluster's devices (docs/sharing.md), and if there are
/// more than two, which of them pair well. `plan`: of the first job.
absl::Status simulate_shared(const PlanningOptions& planning, const PlanningInputs& inputs,
                             const plans::Plan& plan, const SharedArguments& arguments,
                             int32_t steps, bool as_json);

}  // namespace skein::cli
