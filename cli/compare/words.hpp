#pragma once

#include <string>

#include "cli/compare/results.hpp"

namespace skein::cli {

/// How a variant stands in a scenario.
enum class Standing {
  kFaster,  // Than the baseline, and the intervals do not overlap.
  kSlower,
  kUnclear,  // The intervals overlap, or there is only one seed.
  kBaseline,
  kNotReached,  // The target, with some seed.
};
Standing standing(const ScenarioResult& scenario, size_t variant);

/// Whether a variant is faster (1) or slower (-1) than the baseline seed by seed, with 95% of
/// confidence; 0: neither, or it is the baseline. Pairs do not see what slows all runs of a seed
/// alike, so they may tell where intervals over all seeds overlap.
int paired_standing(const ScenarioResult& scenario, size_t variant);

/// Which variant came first in a scenario, how far from the baseline, and whether the intervals
/// overlap: one sentence.
std::string verdict(const ScenarioResult& scenario, double target);
/// One sentence for all scenarios: which variant won where.
std::string verdict(const Results& results);

/// "12.3 s ± 0.4 s", "12.3 s (one seed)", "not reached (3 of 5 seeds)".
std::string target_text(const VariantResult& variant);
/// "1.42 ± 0.03"; empty if it is not known.
std::string interval_text(const std::optional<plans::MeanInterval>& interval);

/// A table for each scenario, fastest first, and the verdicts.
std::string terminal_text(const Results& results);
/// One line for each run that there is (docs/compare.md says what is in it).
std::string csv_text(const Results& results);

}  // namespace skein::cli
