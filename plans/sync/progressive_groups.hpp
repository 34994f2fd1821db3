#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "plans/sync/grouped_server.hpp"

namespace skein::plans {

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
/// if no number of groups is enough, the number that is predicted to be fastest, on a tie fewer.
PipelineGroups fewest_groups(std::span<const double> step_us, double slowdown_max);

struct RegroupOptions {
  double slowdown_max = 1.2;
  /// A grouping is only given up for more groups when its slowdown is above `slowdown_max` times
  /// this and the new one is better by this factor, and for fewer when those stay below
  /// `slowdown_max` divided by this.
  double margin = 1.1;
  /// Observations in a row that have to say so.
  int32_t patience = 3;
};

/// Decides when stragglers have moved enough for other groups. Not thread-safe.
class RegroupTrigger {
 public:
  explicit RegroupTrigger(const RegroupOptions& options) : options_(options) {}

  /// Another observation of the pipeline replicas' step times, as for `group_by_speed`; the groups
  /// to change to, if it is time.
  std::optional<PipelineGroups> observe(std::span<const double> step_us, const PipelineGroups& now);

 private:
  std::optional<PipelineGroups> better(std::span<const double> step_us,
                                       const PipelineGroups& now) const;

  RegroupOptions options_;
  int32_t wishes_ = 0;  // Observations in a row that asked for other groups.
};

}  // namespace skein::plans
