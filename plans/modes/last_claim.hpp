#pragma once

#include <cstddef>
#include <vector>

namespace skein::plans {

/// A pipeline replica towards the end of a round.
struct PipelinePace {
  bool goes_on = false;  // It has claims, and takes more while there are any.
  /// From one claim to the next, by its last iteration: all of it if it ends with a flush, else its
  /// busiest worker's part. 0: not known.
  double pace_us = 0;
  double claims = 0;   // That it holds.
  double samples = 1;  // That each of its claims has.
};

/// Whether the others are through with the round before pipeline replica `own` would be through
/// with one more claim: then it takes none, so that nobody waits for the slowest one at the end.
/// False while the pace of one of the others is not known.
///
/// `samples_left`   that nobody has yet.
bool would_be_last(const std::vector<PipelinePace>& all, size_t own, double samples_left);

}  // namespace skein::plans
