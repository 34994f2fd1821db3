#include "plans/sync/policy_choice.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/upper_median.hpp"
#include "plans/simulator/consensus_distance.hpp"
#include "plans/simulator/policy_simulation.hpp"
#include "plans/sync/allreduce.hpp"

namespace skein::plans {
namespace {

constexpr double kStallsBeyond = 1.5;  // Times the median step.
constexpr double kPiecesOfStep = 2;    // A forward and a backward.
constexpr double kSimulatedSteps =
    100;  // Steps of a pipeline replica as fast as the slowest one is typically.
constexpr uint64_t kSimulationSeed = 1;  // The same stalls for every candidate.

std::unique_ptr<GroupScheduler> make_policy(const SyncCandidate& candidate,
                                            const PipelineLayout& layout, bool averages_moments) {
  if (candidate.runs_pipelines()) {
    return std::make_unique<OverlappedAveragePolicy>(
        layout, overlapped_options(candidate, averages_moments));
  }
  return std::make_unique<AllreducePolicy>(layout);
}

SyncPrediction predict(const StragglerProfile& profile, const SyncCandidate& candidate,
                       bool averages_moments) {
  PolicySimulationOptions options{.layout = profile.layout,
                                  .forward_us = profile.forward_us,
                                  .backward_us = profile.backward_us,
                                  .exchange_us = profile.exchange_us,
                                  .latency_us = profile.latency_us,
                                  .hidden_us = profile.hidden_us,
                                  .moments_per_weight = profile.moments_per_weight};
  options.scenario = sleeping_pieces(profile.stall_us, 1, kSimulationSeed);
  options.scenario.slowdown.probability = profile.stall_rate;
  options.scenario.slowness = profile.slowness;
  double step_us = kPiecesOfStep * profile.stall_rate * profile.stall_us;
  for (uint32_t stage = 0; stage < profile.layout.stages; ++stage) {
    step_us = std::max(step_us, profile.forward_us[stage] + profile.backward_us[stage]);
  }
  const double slowest = *std::max_element(profile.slowness.begin(), profile.slowness.end());
  options.duration_us = kSimulatedSteps * step_us * slowest;
  options.warm_up_us = options.duration_us / 5;
  const auto policy = make_policy(candidate, profile.layout, averages_moments);
  ConsensusDistance consensus_distance(profile.layout, options.warm_up_us);
  const PolicySimulation result = simulate_policy(*policy, options, &consensus_distance);
  return {candidate, result.steps_per_second, consensus_distance.mean(), 0};
}

std::string reason_of(const StragglerProfile& profile, const SyncChoice& choice) {
  std::string reason = absl::StrCat(
      choice.candidate.name(), " of", absl::StrCat(" ", choice.predictions.size()),
      " policies: slowest pipeline replica ",
      absl::SixDigits(*std::max_element(profile.slowness.begin(), profile.slowness.end())),
      " times the fastest, ", absl::SixDigits(100 * profile.stall_rate), " % of pieces stall for ",
      absl::SixDigits(profile.stall_us), " us; progress");
  for (const SyncPrediction& prediction : choice.predictions) {
    absl::StrAppend(&reason, " ", prediction.candidate.name(), "=",
                    absl::SixDigits(std::round(100 * prediction.progress) / 100));
  }
  return reason;
}

/// A step is a stall that takes longer than `limit` times what is typical of its pipeline replica.
void measure_beyond(double limit, std::span<const std::vector<double>> step_us,
                    std::span<const double> typical_us, StragglerProfile& profile) {
  SKEIN_CHECK(step_us.size() == profile.layout.pipelines) << step_us.size();
  SKEIN_CHECK(typical_us.size() == step_us.size()) << typical_us.size();
  double stalled = 0, excess_us = 0, steps = 0;
  for (size_t pipeline = 0; pipeline < step_us.size(); ++pipeline) {
    for (const double each_us : step_us[pipeline]) {
      ++steps;
      if (each_us <= limit * typical_us[pipeline]) continue;
      ++stalled;
      excess_us += each_us - typical_us[pipeline];
    }
  }
  const double fastest_us = *std::min_element(typical_us.begin(), typical_us.end());
  profile.slowness.clear();
  for (const double each_us : typical_us) profile.slowness.push_back(each_us / fastest_us);
  // Of a step's two pieces at least one has stalled.
  profile.stall_rate = 1 - std::sqrt(1 - stalled / steps);
  const double stalls = kPiecesOfStep * profile.stall_rate * steps;
  profile.stall_us = stalls > 0 ? excess_us / stalls : 0;
}

}  // namespace

void measure_stragglers(std::span<const std::vector<double>> step_us, StragglerProfile& profile) {
  std::vector<double> typical_us;
  for (const std::vector<double>& pipeline : step_us) {
    SKEIN_CHECK(!pipeline.empty());
    typical_us.push_back(upper_median(pipeline));
  }
  measure_beyond(kStallsBeyond, step_us, typical_us, profile);
}

void measure_stalls(std::span<const std::vector<double>> step_us,
                    std::span<const double> undisturbed_us, StragglerProfile& profile) {
  measure_beyond(1, step_us, undisturbed_us, profile);
}

std::string SyncCandidate::name() const {
  if (!runs_pipelines()) return "all-reduce";
  return absl::StrCat("overlapped k=", local_steps);
}

OverlappedAverageOptions overlapped_options(const SyncCandidate& candidate, bool averages_moments) {
  OverlappedAverageOptions options{.local_steps = candidate.local_steps,
                                   .average_moments = averages_moments};
  if (averages_moments) options.ahead_max = 1;
  return options;
}

double progress_per_step(double consensus_distance, const DriftKind& kind,
                         const WorthConstants& constants) {
  const double share =
      kind.is_adaptive ? std::pow(static_cast<double>(kind.pipelines), -constants.adaptive_exponent)
                       : 1;
  if (!kind.parts_are_unlike) {
    return share / (1 + constants.loss_on_like_parts * consensus_distance);
  }
  if (kind.averages_moments) {
    return share / (1 + constants.loss_with_moments * consensus_distance);
  }
  return share / (1 + std::sqrt(consensus_distance));
}

SyncChoice choose_sync(const StragglerProfile& profile, std::span<const SyncCandidate> candidates,
                       const ChooserOptions& options) {
  SKEIN_CHECK(!candidates.empty());
  const double reference = predict(profile, {}, false).steps_per_second;
  SyncChoice choice;
  double most = 0;
  for (const SyncCandidate& candidate : candidates) {
    const bool averages_moments = options.averages_moments(candidate);
    SyncPrediction prediction = predict(profile, candidate, averages_moments);
    const DriftKind kind{options.parts_are_unlike, averages_moments, options.is_adaptive,
                         profile.layout.pipelines};
    const double worth =
        candidate.runs_pipelines() ? progress_per_step(prediction.consensus_distance, kind) : 1;
    prediction.progress = prediction.steps_per_second / reference * worth;
    choice.predictions.push_back(prediction);
    if (prediction.progress <= most) continue;
    most = prediction.progress;
    choice.candidate = candidate;
  }
  choice.reason = reason_of(profile, choice);
  return choice;
}

std::optional<SyncChoice> SyncChooser::observe(const StragglerProfile& profile) {
  return judge(choose_sync(profile, candidates_, options_));
}

std::optional<SyncChoice> SyncChooser::judge(SyncChoice choice) {
  double promised = 0, present = 0;
  for (const SyncPrediction& prediction : choice.predictions) {
    if (prediction.candidate == now_) present = prediction.progress;
    if (prediction.candidate == choice.candidate) promised = prediction.progress;
  }
  if (!patience_.on_look(present, choice.candidate == now_ ? 0 : promised)) return std::nullopt;
  now_ = choice.candidate;
  return choice;
}

}  // namespace skein::plans
