#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/compare/experiment.hpp"
#include "cli/compare/run_curve.hpp"
#include "plans/base/student_t.hpp"

namespace skein::cli {

/// What became of one run.
struct RunOutcome {
  ExperimentRun run;
  std::string folder;  // Of the run, below the experiment's.
  std::string error;   // Why it failed; empty: it has a curve.
  RunCurve curve;
};

/// The runs of a variant in a scenario.
struct VariantResult {
  std::string name;
  size_t runs = 0;
  size_t failed = 0;
  size_t reached = 0;  // The target.
  /// Training until the target; only if every seed reached it: a mean of those that did would be
  /// of the lucky ones.
  std::optional<plans::MeanInterval> seconds_to_target;
  /// Times as fast to the target as the baseline, pair by pair of one seed.
  std::optional<plans::MeanInterval> speed_up;
  std::optional<plans::MeanInterval> steps_per_second;
  std::optional<plans::MeanInterval> samples_per_second;
  std::optional<plans::MeanInterval> loss_at_equal_samples;
  // Means over the runs; none if no run tells.
  std::optional<double> bytes_sent;
  std::optional<double> staleness;
  std::vector<double> pipeline_samples;
  std::vector<RunCurve> curves;  // Of the runs that did not fail, by seed.

  bool has_reached() const { return seconds_to_target.has_value(); }
};

struct ScenarioResult {
  std::string scenario;
  uint64_t equal_samples = 0;  // That all of its runs came to, up to the last validation.
  /// Largest share of the time to the target between two validations: the time is no more exact.
  double resolution = 0;
  std::vector<VariantResult> variants;  // As in the experiment: the first is the baseline.

  const VariantResult& baseline() const { return variants.front(); }
  /// Positions in `variants`: those that reached the target by time, then the others; ties as they
  /// are written.
  std::vector<size_t> ranking() const;
};

struct Results {
  Experiment experiment;
  std::vector<RunOutcome> runs;           // In any order; not all may be there yet.
  std::vector<ScenarioResult> scenarios;  // As in the experiment.
};

/// 95%, as everybody's.
inline constexpr double kConfidence = 0.95;

/// Puts runs together. Runs that are missing count as failed ones.
Results summarise(const Experiment& experiment, std::vector<RunOutcome> runs);

}  // namespace skein::cli
