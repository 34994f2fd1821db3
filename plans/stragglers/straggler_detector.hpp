#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// What a worker took for one committed step. Microseconds, finite and above 0; others are dropped.
struct WorkSample {
  double busy_us = 0;      // In actions and updates, without waiting for inputs.
  double expected_us = 0;  // What the plan in force expects of it at its speed known so far.
};

/// A worker is slower or faster than the plan in force expects.
struct SpeedChange {
  WorkerId worker;
  /// Busy over expected time, in relation to the other workers: above 1 slower, below 1 faster,
  /// 1 as expected. With new speeds in the plan, a worker's speed is to be divided by this.
  double slowdown = 1;
  std::string reason;  // One line.
};

/// Finds workers that have become slower or have recovered, from the times of committed steps. Not
/// thread-safe.
///
/// What counts is busy over expected time, so that neither uneven plans nor steps of unlike work
/// raise alarms (ResiHP: raw times do). What all workers share is no one's slowness and is
/// divided away: the median over the workers of each one's own level in the window. Where the two
/// in the middle differ (one of two workers has changed, but which?), the one that is closer to
/// what was common so far is taken for the unchanged one; as long as that is not known, the faster
/// one.
///
/// A worker's level is the interquartile mean of a window of its steps. It has changed when it
/// departs from the level known of it by more than `threshold`, and by more than `errors` standard
/// errors under the noise that the steps have shown, in either of two windows:
///   short  the last `steps_to_confirm` steps, each of which departs by more than the threshold;
///   long   the last `kLongSteps` steps, at `steps_to_confirm` steps in a row: for changes that
///          drown in the noise of a few steps.
/// A level that was reported becomes the known one, so that a change is reported once, and so is
/// the way back. Then the worker is left alone for a while that doubles with each report.
///
/// With one worker there is nobody to compare with, and nothing is ever reported. Nor is the
/// recovery of a worker that the plan does not use: it has no steps to time. Noise hides what is
/// smaller: where one step in five takes three times as long as the others, 4x needs longer than
/// `steps_to_confirm`.
///
/// Cost: O(W kLongSteps log kLongSteps) per step, 2 us per worker (measured, one virtual core, Nov
/// 2026); O(W kLongSteps) memory, for W workers since the last `reset`.
class StragglerDetector {
 public:
  struct Options {
    double threshold = 1.3;             // Smaller changes are not worth a new plan; > 1.
    double errors = 4;                  // Standard errors of a level; >= 0.
    uint64_t steps_to_confirm = 6;      // At least 1, at most `kLongSteps` / 2.
    uint64_t cooldown_steps = 20;       // After the first report of a worker.
    uint64_t cooldown_steps_max = 640;  // Quiet for twice as long: as if never reported.
    bool knows_unit = true;             // Expectations are times; else only their ratios count.
  };

  /// Steps of the long window: a level is then known to a fifth of the noise of a step. A window
  /// twice as long would find changes that are a third smaller, twice as late.
  static constexpr size_t kLongSteps = 32;

  StragglerDetector() : StragglerDetector(Options{}) {}
  explicit StragglerDetector(const Options& options);

  /// A step was committed. `samples`: of the workers that took part in it; `step` is for the reason
  /// only. Returns changes ascending by worker. Between two calls of `reset`, `expected_us` must
  /// follow from the same speeds.
  std::vector<SpeedChange> on_step(uint64_t step, const std::map<WorkerId, WorkSample>& samples);

  /// A new plan is in force, or new speeds are known: expectations have changed, and all workers
  /// are expected to meet them. What is known of noise and reports stays.
  void reset();

 private:
  /// Logarithms make slower and faster alike.
  struct Track {
    std::deque<double> ratios;  // log(busy / expected), the last `kLongSteps`.
    std::deque<double>
        deviations;             // How far the same are from what was common to the step; as many.
    double known = 0;           // What was last reported of it.
    uint64_t slower_steps = 0;  // Steps in a row that the long window has departed for.
    uint64_t faster_steps = 0;
  };
  struct History {             // Outlives plans.
    uint64_t reports = 0;      // Since it was quiet last.
    uint64_t last_report = 0;  // In steps seen.
    double spread = 0;         // When the last plan ended.
  };
  /// A window of all workers that have filled it.
  struct View {
    std::map<WorkerId, double> levels;  // Log, in relation to the known level.
    double common = 0;
  };

  void record(const std::map<WorkerId, WorkSample>& samples);
  View view(size_t steps) const;
  /// Standard deviation of the log of one step's ratio.
  double spread(WorkerId worker, const Track& track) const;
  double pooled_spread() const;
  /// Departure of the level of `steps` steps that counts.
  double bar(double noise, size_t steps) const;
  bool is_short_change(WorkerId worker, const Track& track, const View& view, double noise) const;
  bool is_long_change(WorkerId worker, Track& track, const View& view, double noise) const;
  bool is_cooling(WorkerId worker) const;
  SpeedChange report(WorkerId worker, Track& track, const View& view, size_t steps, uint64_t step);

  Options options_;
  double threshold_ = 0;  // Log.
  uint64_t steps_seen_ = 0;
  /// What has been common to the workers, slowly followed; none: not known yet.
  std::optional<double> anchor_;
  std::map<WorkerId, Track> tracks_;
  std::map<WorkerId, History> histories_;
};

}  // namespace skein::plans
