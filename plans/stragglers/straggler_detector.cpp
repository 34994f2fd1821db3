#include "plans/stragglers/straggler_detector.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// The standard deviation of normal noise from quantiles of its absolute deviations. Half of the
/// steps (the median absolute deviation) tell nothing where most steps are undisturbed and every
/// fourth one is not; nine in ten do, but only of enough steps can one in ten be left out.
struct NoiseQuantile {
  double share;
  double deviations;  // That quantile of |x| for a standard normal x.
};
constexpr NoiseQuantile kOfMany = {0.9, 1.6449};
constexpr NoiseQuantile kOfFew = {0.5, 0.6745};
/// Standard error of the interquartile mean of n normal values: this / sqrt(n) standard deviations,
/// rounded up from 1.09 because 6 values are few.
constexpr double kLevelError = 1.2;
/// Share of a new common level that the anchor takes in per step: slow enough that one worker's
/// noise does not carry it away, quick enough to follow a machine that gets warm.
constexpr double kAnchorShare = 1.0 / 32;

/// The median; with an even number of values the mean of the two in the middle. Not empty.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Mean of the middle half of the last `count` values. As robust as needed here, and where steps
/// come in two kinds (slept or not) it does not jump from one to the other as a median does.
double middle_of_last(const std::deque<double>& values, size_t count) {
  std::vector<double> sorted(values.end() - static_cast<std::ptrdiff_t>(count), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t cut = count / 4;
  double sum = 0;
  for (size_t i = cut; i < count - cut; ++i) sum += sorted[i];
  return sum / static_cast<double>(count - 2 * cut);
}

/// Not empty.
double noise_of(std::vector<double> values, const NoiseQuantile& quantile) {
  const double middle = median(values);
  for (double& value : values) value = std::abs(value - middle);
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(quantile.share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)] / quantile.deviations;
}

/// What workers share at `levels`. Where the two in the middle are further apart than `gap`,
/// they are not one group, and the one closer to `anchor` decides; the lower one on a tie, or if
/// there is none.
double common_level(std::vector<double> levels, std::optional<double> anchor, double gap) {
  std::sort(levels.begin(), levels.end());
  const size_t half = levels.size() / 2;
  if (levels.size() % 2 == 1) return levels[half];
  const double low = levels[half - 1];
  const double high = levels[half];
  if (high - low <= gap) return (low + high) / 2;
  return anchor && std::abs(high - *anchor) < std::abs(low - *anchor) ? high : low;
}

void push_bounded(std::deque<double>& values, double value) {
  values.push_back(value);
  if (values.size() > StragglerDetector::kLongSteps) values.pop_front();
}

bool is_usable(const WorkSample& sample) {
  return std::isfinite(sample.busy_us) && sample.busy_us > 0 && std::isfinite(sample.expected_us) &&
         sample.expected_us > 0;
}

}  // namespace

StragglerDetector::StragglerDetector(const Options& options)
    : options_(options), threshold_(std::log(options.threshold)) {
  if (options.knows_unit) anchor_ = 0;
  SKEIN_CHECK(options.threshold > 1) << options.threshold;
  SKEIN_CHECK(options.errors >= 0) << options.errors;
  SKEIN_CHECK(options.steps_to_confirm >= 1 && options.steps_to_confirm <= kLongSteps / 2)
      << options.steps_to_confirm;
}

std::vector<SpeedChange> StragglerDetector::on_step(uint64_t step,
                                                    const std::map<WorkerId, WorkSample>& samples) {
  ++steps_seen_;
  record(samples);
  const size_t confirm = options_.steps_to_confirm;
  const View recent = view(confirm);
  const View lasting = view(kLongSteps);
  if (!recent.levels.empty()) {
    anchor_ = anchor_ ? *anchor_ + kAnchorShare * (recent.common - *anchor_) : recent.common;
  }
  const double pooled = pooled_spread();
  std::vector<SpeedChange> changes;
  for (const auto& [worker, sample] : samples) {
    const auto found = tracks_.find(worker);
    if (found == tracks_.end()) continue;
    Track& track = found->second;
    const double noise = std::max(spread(worker, track), pooled);
    const bool is_lasting = is_long_change(worker, track, lasting, noise);
    const bool is_recent = is_short_change(worker, track, recent, noise);
    if ((!is_lasting && !is_recent) || is_cooling(worker)) continue;
    const View estimate = is_recent ? recent : view(kLongSteps / 2);
    // What the long window still shows may be over.
    if (std::abs(estimate.levels.at(worker) - estimate.common) <= threshold_) continue;
    changes.push_back(report(worker, track, estimate, is_recent ? confirm : kLongSteps / 2, step));
  }
  return changes;
}

void StragglerDetector::reset() {
  std::map<WorkerId, History> kept;
  for (const auto& [worker, track] : tracks_) {
    History& history = kept[worker];
    if (const auto known = histories_.find(worker); known != histories_.end()) {
      history = known->second;
    }
    if (track.deviations.size() >= options_.steps_to_confirm) {
      history.spread = spread(worker, track);
    }
  }
  histories_ = std::move(kept);
  tracks_.clear();
}

void StragglerDetector::record(const std::map<WorkerId, WorkSample>& samples) {
  std::vector<double> levels;
  for (const auto& [worker, sample] : samples) {
    if (!is_usable(sample)) continue;
    Track& track = tracks_[worker];
    push_bounded(track.ratios, std::log(sample.busy_us / sample.expected_us));
    levels.push_back(track.ratios.back() - track.known);
  }
  if (levels.size() < 2) return;
  const double common = median(levels);
  // Of few workers each one is part of the median, which then hides a share of its noise.
  const auto count = static_cast<double>(levels.size());
  const double scale = std::sqrt(count / (count - 1));
  for (const auto& [worker, sample] : samples) {
    if (!is_usable(sample)) continue;
    Track& track = tracks_[worker];
    push_bounded(track.deviations, (track.ratios.back() - track.known - common) * scale);
  }
}

StragglerDetector::View StragglerDetector::view(size_t steps) const {
  View view;
  std::vector<double> levels;
  for (const auto& [worker, track] : tracks_) {
    if (track.ratios.size() < steps) continue;
    levels.push_back(middle_of_last(track.ratios, steps) - track.known);
    view.levels[worker] = levels.back();
  }
  if (!levels.empty()) view.common = common_level(std::move(levels), anchor_, threshold_);
  return view;
}

double StragglerDetector::spread(WorkerId worker, const Track& track) const {
  const std::deque<double>& all = track.deviations;
  // A change that is just being confirmed is no noise.
  const size_t confirm = options_.steps_to_confirm;
  const bool is_long = all.size() >= 2 * confirm;
  const size_t left_out = is_long ? confirm : 0;
  double own = 0;
  if (!all.empty()) {
    own = noise_of({all.begin(), all.end() - static_cast<std::ptrdiff_t>(left_out)},
                   is_long ? kOfMany : kOfFew);
  }
  const auto before = histories_.find(worker);
  if (before == histories_.end() || track.deviations.size() >= kLongSteps) return own;
  return std::max(own, before->second.spread);
}

double StragglerDetector::pooled_spread() const {
  std::vector<double> spreads;
  for (const auto& [worker, track] : tracks_) spreads.push_back(spread(worker, track));
  return spreads.empty() ? 0 : median(std::move(spreads));
}

double StragglerDetector::bar(double noise, size_t steps) const {
  // What the others have in common is known from them only: from one other as badly as the worker.
  const double others = std::max(1.0, static_cast<double>(tracks_.size()) - 1);
  const double error =
      noise * kLevelError * std::sqrt((1 + 1 / others) / static_cast<double>(steps));
  return std::max(threshold_, options_.errors * error);
}

bool StragglerDetector::is_short_change(WorkerId worker, const Track& track, const View& view,
                                        double noise) const {
  const auto level = view.levels.find(worker);
  if (level == view.levels.end()) return false;
  const double departure = level->second - view.common;
  if (std::abs(departure) <= bar(noise, options_.steps_to_confirm)) return false;
  const double sign = departure > 0 ? 1 : -1;
  return std::all_of(track.ratios.end() - static_cast<std::ptrdiff_t>(options_.steps_to_confirm),
                     track.ratios.end(), [&](double ratio) {
                       return sign * (ratio - track.known - view.common) > threshold_;
                     });
}

bool StragglerDetector::is_long_change(WorkerId worker, Track& track, const View& view,
                                       double noise) const {
  const auto level = view.levels.find(worker);
  const double departure = level == view.levels.end() ? 0 : level->second - view.common;
  const double least = bar(noise, kLongSteps);
  track.slower_steps = departure > least ? track.slower_steps + 1 : 0;
  track.faster_steps = departure < -least ? track.faster_steps + 1 : 0;
  return std::max(track.slower_steps, track.faster_steps) >= options_.steps_to_confirm;
}

bool StragglerDetector::is_cooling(WorkerId worker) const {
  const auto found = histories_.find(worker);
  if (found == histories_.end() || found->second.reports == 0) return false;
  uint64_t wait = options_.cooldown_steps;
  for (uint64_t i = 1; i < found->second.reports && wait < options_.cooldown_steps_max; ++i) {
    wait *= 2;
  }
  return steps_seen_ - found->second.last_report < std::min(wait, options_.cooldown_steps_max);
}

SpeedChange StragglerDetector::report(WorkerId worker, Track& track, const View& view, size_t steps,
                                      uint64_t step) {
  History& history = histories_[worker];
  // Twice, so that the longest wait does not itself look like a quiet time.
  if (steps_seen_ - history.last_report > 2 * options_.cooldown_steps_max) history.reports = 0;
  ++history.reports;
  history.last_report = steps_seen_;
  const double before = std::exp(track.known);
  track.known += view.levels.at(worker) - view.common;
  track.slower_steps = 0;
  track.faster_steps = 0;
  // What is older belongs to the level before, and would look like a way back.
  while (track.ratios.size() > options_.steps_to_confirm) track.ratios.pop_front();
  const double slowdown = std::exp(track.known);
  return {
      worker, slowdown,
      absl::StrFormat("steps take it %.3g times as long as planned, and took it %.3g times as long "
                      "before (median of %d steps up to step %d, beside the other workers)",
                      slowdown, before, steps, step)};
}

}  // namespace skein::plans
