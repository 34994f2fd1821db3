#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "plans/sync/grouped_server.hpp"

namespace skein::plans {

/// A number of groups that says nothing.
inline constexpr int32_t kAnyCount = std::numeric_limits<int32_t>::max();

/// How much longer than without stragglers grouped servers take for the same samples.
///
/// A group of n pipeline replicas does n steps in the time of its slowest member, so the groups
/// together do sum(n_g / max step time of g) steps per microsecond; the reference is that all
/// pipeline replicas take the lower median's time. Generalises Basu et al., HiPC 2018: with one
/// pipeline replica of N that takes 1 + d times as long, in G even groups, it is 1 / (1 - (d / (1 +
/// d)) / G). Communication is left out.
///
/// `step_us`  [pipeline replicas]  what a pipeline replica needs for a step by itself, > 0.
/// `groups`   [pipeline replicas]  -1: the pipeline replica is not there.
double predicted_slowdown(std::span<const double> step_us, const PipelineGroups& groups);

/// G groups whose sizes differ by at most one, the slowest pipeline replicas together in the first
/// and smallest one, the next ones in the second and so on; of equal pipeline replicas the first
/// one is taken for the slower one. 1 <= G <= pipeline replicas that are there (`step_us` > 0; the
/// others get -1).
PipelineGroups group_by_speed(std::span<const double> step_us, int32_t group_count);

/// The fewest groups, so the least staleness, whose predicted slowdown is at most `slowdown_max`;
/// if no number of groups up to `count_max` is enough, the number that is predicted to be fastest,
/// on a tie fewer.
PipelineGroups fewest_groups(std::span<const double> step_us, double slowdown_max,
                             int32_t count_max = kAnyCount);

struct RegroupOptions {
  /// So many groups; as many as pipeline replicas if these are fewer. 0: the fewest that keep
  /// within `slowdown_max`.
  int32_t group_count = 0;
  double slowdown_max = 1.2;
  /// As `AccuracyBound`; 0: the held-out loss does not matter.
  double loss_rise_max = 0;
  /// A grouping is only given up for more groups when its slowdown is above `slowdown_max` times
  /// this and the new one is better by this factor, and for fewer when those stay below
  /// `slowdown_max` divided by this.
  double margin = 1.1;
  /// Observations in a row that have to say so.
  int32_t patience = 3;
};

/// How many groups there may be by what they cost in accuracy, as staleness is about their number
/// less one. Basu et al. raise the number until the loss of accuracy hits a limit; how they measure
/// that is not known to us. Here it is the held-out loss: when it is above the lowest one so far by
/// more than a share of that, or not finite, half as many groups are allowed, once for each number
/// of groups; with each loss that is lower than all before, twice as many again. Not thread-safe.
class AccuracyBound {
 public:
  /// `rise_max` 0: any number is allowed, always.
  explicit AccuracyBound(double rise_max) : rise_max_(rise_max) {}

  /// A held-out loss; there are so many groups.
  void on_loss(double loss, int32_t group_count);
  int32_t count_max() const { return count_max_; }

 private:
  double rise_max_;
  std::optional<double> lowest_;
  int32_t count_max_ = kAnyCount;  // >= 1
};

/// Decides when stragglers have moved enough for other groups. Not thread-safe.
class RegroupTrigger {
 public:
  explicit RegroupTrigger(const RegroupOptions& options)
      : options_(options), bound_(options.loss_rise_max) {}

  /// Another observation of the pipeline replicas' step times, as for `group_by_speed`; the groups
  /// to change to, if it is time.
  std::optional<PipelineGroups> observe(std::span<const double> step_us, const PipelineGroups& now);
  /// A held-out loss; if there are now too many groups, the next observation changes them.
  void on_loss(double loss, const PipelineGroups& now);

 private:
  std::optional<PipelineGroups> better(std::span<const double> step_us,
                                       const PipelineGroups& now) const;

  RegroupOptions options_;
  AccuracyBound bound_;
  int32_t wishes_ = 0;  // Observations in a row that asked for other groups.
};

}  // namespace skein::plans
