#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/compare/results.hpp"

namespace skein::cli {

/// A run that comes from a loss of 4 to 2.5 in ten validations, 2.5 itself after `seconds`.
inline RunCurve falling_curve(double seconds) {
  RunCurve curve;
  for (uint64_t i = 1; i <= 10; ++i) {
    const double share = static_cast<double>(i) / 10;
    curve.points.push_back({seconds * share, 10 * i, 160 * i, 4 - 1.5 * share});
  }
  curve.seconds = seconds;
  curve.steps_per_second = 100 / seconds;
  curve.samples_per_second = 1600 / seconds;
  return curve;
}

/// Variants "base", "swift", "like" and "lame" in the scenarios H0 and H2: under H0 swift needs
/// half of base's time and like about the same, lame never comes down; under H2 one run of swift
/// has failed and nobody but base reaches the target.
inline Results synthetic_results() {
  Experiment experiment;
  experiment.name = "synthetic <&>";
  experiment.base = "job.toml";
  experiment.workers = 2;
  experiment.target = 2.5;
  experiment.seeds = {1, 2, 3};
  experiment.scenarios = {"H0", "H2"};
  experiment.variants = {{"base", {}}, {"swift", {}}, {"like", {}}, {"lame", {}}};
  const double seconds[] = {10, 5, 10.1, 10};
  std::vector<RunOutcome> runs;
  for (const ExperimentRun& run : runs_of(experiment)) {
    RunOutcome outcome{run, folder_of(experiment, run), "", {}};
    // Every seed is a little slower for all alike.
    const double drift = 1 + 0.02 * static_cast<double>(run.seed);
    outcome.curve = falling_curve(seconds[run.variant] * drift);
    const bool falls_short = run.variant == 3 || (run.scenario == 1 && run.variant > 0);
    if (falls_short) outcome.curve.points.pop_back();
    if (run.scenario == 1 && run.variant == 1 && run.seed == 2) {
      outcome.error = "skein train ended with code 1: a, \"b\"";
      outcome.curve = {};
    }
    runs.push_back(std::move(outcome));
  }
  return summarise(experiment, std::move(runs));
}

}  // namespace skein::cli
