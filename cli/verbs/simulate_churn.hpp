#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/config/planning_inputs.hpp"
#include "plans/chaos/churn_trace.hpp"
#include "plans/simulator/churn_simulation.hpp"

namespace skein::cli {

/// `skein simulate JOB CLUSTER --churn TRACE`.
struct ChurnArguments {
  std::string trace_path;  // Empty: members stay.
  plans::ChurnOptions options;
  plans::ChurnCosts costs;
  std::vector<int64_t> template_stages = {2, 4};
  std::string chaos_path;  // File for the script of a real run; empty: not wanted.
  bool as_json = false;
};

/// Prints what becomes of several ways to train when members come and go as recorded.
absl::Status simulate_churn(const PlanningOptions& planning, const ChurnArguments& arguments);

}  // namespace skein::cli
