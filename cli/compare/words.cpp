#include "cli/compare/words.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/report/number_text.hpp"

namespace skein::cli {
namespace {

std::string times_text(double ratio) { return absl::StrFormat("%.2f times", ratio); }

/// Behind "NAME reaches the target first": how it stands to the baseline.
std::string in_relation_to_baseline(const ScenarioResult& scenario, size_t best) {
  const VariantResult& winner = scenario.variants[best];
  const VariantResult& baseline = scenario.baseline();
  if (best == 0) return "";
  if (!baseline.has_reached()) {
    return absl::StrCat(", which the baseline ", baseline.name, " does not with every seed");
  }
  const bool needs_pairs = !winner.seconds_to_target->is_apart_from(*baseline.seconds_to_target) &&
                           paired_standing(scenario, best) > 0;
  return absl::StrCat(
      ", ", times_text(baseline.seconds_to_target->mean / winner.seconds_to_target->mean),
      " as fast as the baseline ", baseline.name,
      needs_pairs ? absl::StrCat(" (seed by seed ", interval_text(winner.speed_up), " times)")
                  : std::string());
}

/// Whether the first of a ranking is certain to be first.
std::string certainty(const VariantResult& winner, const VariantResult* second) {
  if (second == nullptr || !second->has_reached()) return "";
  if (winner.runs < 2) return "; with one seed nothing is certain";
  if (winner.seconds_to_target->is_apart_from(*second->seconds_to_target)) {
    return absl::StrCat("; its 95% interval does not overlap that of the next, ", second->name);
  }
  return absl::StrCat("; but its 95% interval overlaps that of ", second->name);
}

bool is_clear(const ScenarioResult& scenario) {
  const std::vector<size_t> order = scenario.ranking();
  if (!scenario.variants[order[0]].has_reached()) return false;
  if (order.size() == 1) return true;
  const VariantResult& second = scenario.variants[order[1]];
  return !second.has_reached() ||
         scenario.variants[order[0]].seconds_to_target->is_apart_from(*second.seconds_to_target);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

template <class Value>
std::string csv_number(const std::optional<Value>& value) {
  return value ? absl::StrFormat("%.9g", static_cast<double>(*value)) : std::string();
}

std::string csv_line(const Results& results, const RunOutcome& outcome) {
  const Experiment& experiment = results.experiment;
  const RunCurve& curve = outcome.curve;
  const bool ok = outcome.error.empty();
  const CurvePoint* reached = ok ? curve.reached(experiment.target) : nullptr;
  const uint64_t equal = results.scenarios[outcome.run.scenario].equal_samples;
  std::optional<double> seconds, steps, samples, last, least;
  if (reached != nullptr) {
    seconds = reached->seconds;
    steps = static_cast<double>(reached->step);
    samples = static_cast<double>(reached->samples);
  }
  for (const CurvePoint& point : curve.points) {
    last = point.loss;
    least = std::min(least.value_or(point.loss), point.loss);
  }
  const auto of_run = [ok](double value) { return ok ? std::optional(value) : std::nullopt; };
  const std::vector<std::string> fields = {csv_field(experiment.scenarios[outcome.run.scenario]),
                                           experiment.variants[outcome.run.variant].name,
                                           absl::StrCat(experiment.seeds[outcome.run.seed]),
                                           ok ? "done" : "failed",
                                           ok ? (reached != nullptr ? "yes" : "no") : "",
                                           csv_number(seconds),
                                           csv_number(steps),
                                           csv_number(samples),
                                           csv_number(of_run(curve.seconds)),
                                           csv_number(of_run(curve.steps_per_second)),
                                           csv_number(of_run(curve.samples_per_second)),
                                           csv_number(least),
                                           csv_number(last),
                                           csv_number(curve.loss_at(equal)),
                                           absl::StrCat(equal),
                                           csv_number(curve.bytes_sent),
                                           csv_number(curve.staleness),
                                           absl::StrJoin(curve.pipeline_samples, " "),
                                           csv_field(outcome.folder),
                                           csv_field(outcome.error)};
  return absl::StrJoin(fields, ",") + "\n";
}

}  // namespace

Standing standing(const ScenarioResult& scenario, size_t variant) {
  const VariantResult& own = scenario.variants[variant];
  if (!own.has_reached()) return Standing::kNotReached;
  if (variant == 0) return Standing::kBaseline;
  const VariantResult& baseline = scenario.baseline();
  if (!baseline.has_reached()) return Standing::kFaster;
  if (!own.seconds_to_target->is_apart_from(*baseline.seconds_to_target)) {
    return Standing::kUnclear;
  }
  return own.seconds_to_target->mean < baseline.seconds_to_target->mean ? Standing::kFaster
                                                                        : Standing::kSlower;
}

int paired_standing(const ScenarioResult& scenario, size_t variant) {
  const auto& speed_up = scenario.variants[variant].speed_up;
  if (variant == 0 || !speed_up || !speed_up->half_width) return 0;
  if (speed_up->low() > 1) return 1;
  return speed_up->high() < 1 ? -1 : 0;
}

std::string verdict(const ScenarioResult& scenario, double target) {
  const std::vector<size_t> order = scenario.ranking();
  const VariantResult& winner = scenario.variants[order.front()];
  const std::string where = absl::StrCat("Under ", scenario.scenario, ", ");
  if (!winner.has_reached()) {
    return absl::StrCat(where, "no variant reaches a loss of ", target, " with every seed.");
  }
  const VariantResult* second = order.size() > 1 ? &scenario.variants[order[1]] : nullptr;
  return absl::StrCat(where, winner.name, " reaches a loss of ", target, " first",
                      in_relation_to_baseline(scenario, order.front()), certainty(winner, second),
                      ".");
}

std::string verdict(const Results& results) {
  std::vector<std::pair<std::string, std::vector<std::string>>> wins;  // By variant.
  for (const Variant& variant : results.experiment.variants) wins.push_back({variant.name, {}});
  std::vector<std::string> open, unreached;
  for (const ScenarioResult& scenario : results.scenarios) {
    const size_t best = scenario.ranking().front();
    if (!scenario.variants[best].has_reached()) {
      unreached.push_back(scenario.scenario);
    } else if (is_clear(scenario)) {
      wins[best].second.push_back(scenario.scenario);
    } else {
      open.push_back(scenario.scenario);
    }
  }
  std::vector<std::string> parts;
  for (const auto& [name, scenarios] : wins) {
    if (scenarios.empty()) continue;
    parts.push_back(absl::StrCat(name, " is first under ", absl::StrJoin(scenarios, ", ")));
  }
  if (!open.empty()) {
    const bool has_one_seed = results.experiment.seeds.size() == 1;
    parts.push_back(absl::StrCat(
        "under ", absl::StrJoin(open, ", "), " it is open which is first, ",
        has_one_seed ? "as there is one seed" : "as the 95% intervals of the best two overlap"));
  }
  if (!unreached.empty()) {
    parts.push_back(
        absl::StrCat("under ", absl::StrJoin(unreached, ", "), " none reaches the target"));
  }
  std::string text = absl::StrJoin(parts, "; ") + ".";
  if (text.starts_with("under")) text[0] = 'U';
  return text;
}

std::string target_text(const VariantResult& variant) {
  if (variant.failed > 0) {
    return absl::StrCat("failed (", variant.failed, " of ", variant.runs, " seeds)");
  }
  if (!variant.has_reached()) {
    return absl::StrCat("not reached (", variant.reached, " of ", variant.runs, " seeds)");
  }
  const plans::MeanInterval& seconds = *variant.seconds_to_target;
  if (!seconds.half_width) return absl::StrFormat("%.2f s (one seed)", seconds.mean);
  return absl::StrFormat("%.2f s \u00b1 %.2f s", seconds.mean, *seconds.half_width);
}

std::string interval_text(const std::optional<plans::MeanInterval>& interval) {
  if (!interval) return "";
  if (!std::isfinite(interval->mean)) return "diverged";
  // As many digits as say something.
  const double size = std::abs(interval->mean);
  const int digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  if (!interval->half_width) return absl::StrFormat("%.*f", digits, interval->mean);
  return absl::StrFormat("%.*f \u00b1 %.*f", digits, interval->mean, digits, *interval->half_width);
}

std::string terminal_text(const Results& results) {
  std::string text;
  for (const ScenarioResult& scenario : results.scenarios) {
    absl::StrAppendFormat(&text, "\n%s\n", scenario.scenario);
    const auto row = [&](const std::string& a, const std::string& b, const std::string& c,
                         const std::string& d, const std::string& e) {
      // The width of a column counts characters, and "\u00b1" has two bytes.
      const auto wide = [](const std::string& cell, size_t width) {
        const size_t extra = cell.find("\u00b1") == std::string::npos ? 0 : 1;
        return cell +
               std::string(std::max(cell.size() - extra, width) - (cell.size() - extra), ' ');
      };
      const std::string line = absl::StrCat("  ", wide(a, 20), " ", wide(b, 28), " ", wide(c, 14),
                                            " ", wide(d, 16), " ", e);
      absl::StrAppend(&text, std::string(absl::StripTrailingAsciiWhitespace(line)), "\n");
    };
    row("variant", absl::StrCat("time to loss ", results.experiment.target), "times as fast",
        "samples/s", absl::StrCat("loss at ", with_commas(scenario.equal_samples), " samples"));
    for (const size_t v : scenario.ranking()) {
      const VariantResult& variant = scenario.variants[v];
      row(variant.name, target_text(variant), interval_text(variant.speed_up),
          interval_text(variant.samples_per_second), interval_text(variant.loss_at_equal_samples));
    }
    absl::StrAppend(&text, "  ", verdict(scenario, results.experiment.target), "\n");
  }
  return text;
}

std::string csv_text(const Results& results) {
  std::string text =
      "scenario,variant,seed,status,reached,seconds_to_target,steps_to_target,samples_to_target,"
      "seconds,steps_per_second,samples_per_second,loss_least,loss_last,loss_at_equal_samples,"
      "equal_samples,bytes_sent,staleness,pipeline_samples,folder,error\n";
  for (const RunOutcome& outcome : results.runs) absl::StrAppend(&text, csv_line(results, outcome));
  return text;
}

}  // namespace skein::cli
