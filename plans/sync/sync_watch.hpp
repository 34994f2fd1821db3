#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "plans/sync/policy_choice.hpp"

namespace skein::plans {

struct SyncWatchOptions {
  double moments_per_weight = 0;  // As in `StragglerProfile`.
  ChooserOptions chooser;
  std::vector<uint64_t> local_steps = {1, 2};  // What the candidates beside all-reduce have.
  /// What an all-reduce added to a step of an earlier plan, if none is seen now; 0: not known.
  double added_us = 0;
  /// So many of each pipeline replica, at the beginning: what is done for the first time takes
  /// longer.
  uint64_t steps_left_out = 0;
};

/// Follows what steps take, and what an all-reduce adds to them, and says when pipeline replicas
/// should have a pace of their own, or should not any more. Ours. Not thread-safe.
class SyncWatch {
 public:
  SyncWatch(PipelineLayout layout, SyncWatchOptions options, SyncCandidate now);

  const SyncCandidate& now() const { return chooser_.now(); }
  /// The pipeline replica computed for so long in a step of its own: the stage that took longest.
  void on_step(uint32_t pipeline, uint64_t busy_us);
  /// A synchronous step took so much longer than its slowest pipeline replica computed.
  void on_added(uint64_t added_us);
  /// The median of what was added lately, or what was known of that; 0: nothing.
  double added_us() const;
  /// If a look is due: what to change to, and why, if it is time. Cost: simulations.
  std::optional<SyncChoice> look();
  /// The same, in two parts. If a look is due: what pipeline replicas are like.
  std::optional<StragglerProfile> due();
  /// What `choose_sync` says about that profile, with the candidates and options of `chooser`.
  std::optional<SyncChoice> on_choice(SyncChoice choice);
  const SyncChooser& chooser() const { return chooser_; }

 private:
  StragglerProfile observed_profile() const;

  PipelineLayout layout_;
  SyncWatchOptions options_;
  SyncChooser chooser_;
  std::vector<std::deque<double>> steps_us_;  // [pipeline replicas], the last ones.
  std::vector<uint64_t> left_out_;            // [pipeline replicas]
  std::deque<double> added_us_;               // The last ones.
  uint64_t steps_seen_ = 0;                   // Since the last look.
};

}  // namespace skein::plans
