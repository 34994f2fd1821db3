#pragma once

#include <cstdint>
#include <vector>

#include "plans/plan/plan.hpp"

namespace skein::plans {

/// When the actions of a stage end as the lists of a plan are executed, in microseconds, or in
/// another unit if times are not known.
struct StageEnds {
  std::vector<uint64_t> forward;   // [M]
  std::vector<uint64_t> backward;  // [M] The B or I.
  uint64_t last = 0;               // All of the stage's actions have.
  bool operator==(const StageEnds&) const = default;
};

/// What a step may take at most: as many of the longest actions as a list may have.
inline constexpr uint64_t kEndMax = uint64_t{1} << 62;

/// Each action begins when the one before it in its list and all that it needs has ended, which
/// takes no time to pass on.
///
/// `times`   [stages]  empty, or not all known: 1 for all actions but B, which takes 2.
/// Returns   [stages]
/// The plan is valid. Cost  O(actions * log).
std::vector<StageEnds> action_ends(const Plan& plan, std::vector<ActionTimes> times);

}  // namespace skein::plans
