#include "cli/compare/results.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace skein::cli {
namespace {

/// The runs of one variant in one scenario, by seed; null where one failed or is missing.
std::vector<const RunCurve*> curves_of(const Experiment& experiment,
                                       const std::vector<RunOutcome>& runs, size_t scenario,
                                       size_t variant) {
  std::vector<const RunCurve*> curves(experiment.seeds.size(), nullptr);
  for (const RunOutcome& outcome : runs) {
    if (outcome.run.scenario != scenario || outcome.run.variant != variant) continue;
    if (outcome.error.empty()) curves[outcome.run.seed] = &outcome.curve;
  }
  return curves;
}

template <class Value>
std::optional<plans::MeanInterval> interval_of(const std::vector<const RunCurve*>& curves,
                                               Value value_of) {
  std::vector<double> values;
  for (const RunCurve* curve : curves) {
    if (curve == nullptr) continue;
    const std::optional<double> value = value_of(*curve);
    if (value) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  return plans::mean_interval(values, kConfidence);
}

std::optional<double> mean_of(std::optional<plans::MeanInterval> interval) {
  return interval ? std::optional<double>(interval->mean) : std::nullopt;
}

std::vector<double> mean_pipelines(const std::vector<RunCurve>& curves) {
  std::vector<double> means;
  for (const RunCurve& curve : curves) {
    means.resize(std::max(means.size(), curve.pipeline_samples.size()));
    for (size_t c = 0; c < curve.pipeline_samples.size(); ++c) {
      means[c] +=
          static_cast<double>(curve.pipeline_samples[c]) / static_cast<double>(curves.size());
    }
  }
  return means;
}

VariantResult variant_result(const std::string& name, double target,
                             const std::vector<const RunCurve*>& curves) {
  VariantResult result;
  result.name = name;
  result.runs = curves.size();
  for (const RunCurve* curve : curves) {
    result.failed += curve == nullptr ? 1 : 0;
    result.reached += curve != nullptr && curve->reached(target) != nullptr ? 1 : 0;
    if (curve != nullptr) result.curves.push_back(*curve);
  }
  const auto time = [target](const RunCurve& curve) -> std::optional<double> {
    const CurvePoint* point = curve.reached(target);
    return point == nullptr ? std::nullopt : std::optional<double>(point->seconds);
  };
  if (result.reached == result.runs) result.seconds_to_target = interval_of(curves, time);
  result.steps_per_second = interval_of(
      curves, [](const RunCurve& curve) { return std::optional<double>(curve.steps_per_second); });
  result.samples_per_second = interval_of(curves, [](const RunCurve& curve) {
    return std::optional<double>(curve.samples_per_second);
  });
  result.bytes_sent =
      mean_of(interval_of(curves, [](const RunCurve& curve) { return curve.bytes_sent; }));
  result.staleness =
      mean_of(interval_of(curves, [](const RunCurve& curve) { return curve.staleness; }));
  result.pipeline_samples = mean_pipelines(result.curves);
  return result;
}

/// Times as fast as the baseline with the same seed, over the seeds.
std::optional<plans::MeanInterval> speed_up(double target,
                                            const std::vector<const RunCurve*>& baseline,
                                            const std::vector<const RunCurve*>& curves) {
  std::vector<double> ratios;
  for (size_t seed = 0; seed < curves.size(); ++seed) {
    if (curves[seed] == nullptr || baseline[seed] == nullptr) return std::nullopt;
    const CurvePoint* own = curves[seed]->reached(target);
    const CurvePoint* other = baseline[seed]->reached(target);
    if (own == nullptr || other == nullptr || !(own->seconds > 0)) return std::nullopt;
    ratios.push_back(other->seconds / own->seconds);
  }
  return plans::mean_interval(ratios, kConfidence);
}

uint64_t equal_samples(const std::vector<std::vector<const RunCurve*>>& all) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const auto& curves : all) {
    for (const RunCurve* curve : curves) {
      if (curve == nullptr) continue;
      least = std::min(least, curve->points.empty() ? 0 : curve->points.back().samples);
    }
  }
  return least == std::numeric_limits<uint64_t>::max() ? 0 : least;
}

/// How much of the time to the target lies behind the validation before it.
double resolution(double target, const std::vector<std::vector<const RunCurve*>>& all) {
  double largest = 0;
  for (const auto& curves : all) {
    for (const RunCurve* curve : curves) {
      const CurvePoint* point = curve == nullptr ? nullptr : curve->reached(target);
      if (point == nullptr || !(point->seconds > 0)) continue;
      const double before = point == curve->points.data() ? 0 : (point - 1)->seconds;
      largest = std::max(largest, (point->seconds - before) / point->seconds);
    }
  }
  return largest;
}

}  // namespace

std::vector<size_t> ScenarioResult::ranking() const {
  std::vector<size_t> order(variants.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto time = [this](size_t i) {
    return variants[i].has_reached() ? variants[i].seconds_to_target->mean
                                     : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return time(a) < time(b); });
  return order;
}

Results summarise(const Experiment& experiment, std::vector<RunOutcome> runs) {
  Results results;
  results.experiment = experiment;
  results.runs = std::move(runs);
  const double target = experiment.target;
  for (size_t s = 0; s < experiment.scenarios.size(); ++s) {
    ScenarioResult scenario;
    scenario.scenario = experiment.scenarios[s];
    std::vector<std::vector<const RunCurve*>> all;
    for (size_t v = 0; v < experiment.variants.size(); ++v) {
      all.push_back(curves_of(experiment, results.runs, s, v));
    }
    scenario.equal_samples = equal_samples(all);
    scenario.resolution = resolution(target, all);
    for (size_t v = 0; v < experiment.variants.size(); ++v) {
      VariantResult variant = variant_result(experiment.variants[v].name, target, all[v]);
      variant.speed_up = speed_up(target, all[0], all[v]);
      variant.loss_at_equal_samples = interval_of(
          all[v], [&](const RunCurve& curve) { return curve.loss_at(scenario.equal_samples); });
      scenario.variants.push_back(std::move(variant));
    }
    results.scenarios.push_back(std::move(scenario));
  }
  return results;
}

}  // namespace skein::cli
