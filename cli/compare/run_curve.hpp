#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::cli {

/// A validation of a run.
struct CurvePoint {
  double seconds = 0;  // Training before it; validations themselves do not count.
  uint64_t step = 0;
  uint64_t samples = 0;  // Trained on before it.
  double loss = 0;       // Infinity if it was none any more.
  bool operator==(const CurvePoint&) const = default;
};

/// What metrics.jsonl tells of one run.
struct RunCurve {
  std::vector<CurvePoint> points;  // Ascending by step.
  double seconds = 0;              // The time of all steps, without validations.
  double steps_per_second = 0;
  double samples_per_second = 0;
  // What only some runs tell.
  std::optional<double> bytes_sent;        // Sum of the lines.
  std::optional<double> staleness;         // Mean of the lines.
  std::vector<uint64_t> pipeline_samples;  // Sums of the lines.

  /// The first validation with a loss of at most `target`.
  const CurvePoint* reached(double target) const;
  /// Between validations by a straight line; none before the first and after the last one.
  std::optional<double> loss_at(uint64_t samples) const;
};

/// Reads metrics.jsonl. Lines of other kinds, and unknown fields, do not count.
/// InvalidArgument   "name:3: ..." if a line is no JSON or lacks what every line of its kind has;
///                   "name: ..." if there is no step.
absl::StatusOr<RunCurve> parse_run_curve(const std::string& jsonl, const std::string& name);

}  // namespace skein::cli
