#pragma once

#include <string>
#include <vector>

#include "cli/config/planning_inputs.hpp"
#include "cli/report/quick_simulation.hpp"
#include "cli/report/run_reporter.hpp"
#include "cli/verbs/plan_verb.hpp"
#include "cli/verbs/simulate_churn.hpp"
#include "cli/verbs/simulate_shared.hpp"

namespace skein::cli {

struct SimulateOptions {
  PlanningOptions planning;  // With a job file ...
  QuickOptions quick;        // ... or, without one, numbers alone.
  ChurnArguments churn;      // With a job file and a trace: members come and go.
  SharedArguments shared;    // With a job file and others: they share the devices.
  PictureFiles files;
  std::string plan_path;  // A plan.txt; empty: plan first.
  // Flags that were given and that only one form takes, as "--schedule".
  std::vector<std::string> flags_of_files;
  std::vector<std::string> flags_of_numbers;
  int32_t steps = 10;
  LogFormat format = LogFormat::kText;
  bool quiet = false;
};

/// `skein simulate`: what `skein train` would do, without doing it. With files it leaves a run
/// directory; without, it prints the schedule. Returns the exit code.
int simulate(const SimulateOptions& options);

}  // namespace skein::cli
