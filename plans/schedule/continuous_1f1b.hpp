#pragma once

#include <algorithm>
#include <cstdint>

namespace skein::plans {

/// 1F1B without a flush between iterations: PipeDream's schedule (Narayanan et al., SOSP'19, 3.2),
/// with several micro-batches in each update. A stage of S does S - s forwards ahead of its
/// backwards, of whichever iterations in flight they are.
struct Continuous1F1B {
  int32_t stage_count = 1;       // S
  int32_t microbatch_count = 1;  // M of an iteration
  int32_t passes = 1;            // K that may be in flight.

  /// Micro-batches of `stage` whose forward is done and whose backward is not, at most.
  int32_t stash_peak(int32_t stage) const {
    const int64_t in_flight = int64_t{passes} * microbatch_count;
    return static_cast<int32_t>(std::min<int64_t>(stage_count - stage, in_flight));
  }
  /// Versions of a stage's weights that the backwards of those micro-batches need beside the newest
  /// one, at most: updates that fall between a forward and its backward.
  int32_t old_versions(int32_t stage) const {
    const int32_t updates = (stash_peak(stage) - 1 + microbatch_count - 1) / microbatch_count;
    return std::min(updates, passes - 1);
  }
};

}  // namespace skein::plans
