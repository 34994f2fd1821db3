#include "plans/modes/last_claim.hpp"

#include <algorithm>
#include <limits>

namespace skein::plans {

bool would_be_last(const std::vector<PipelinePace>& all, size_t own, double samples_left) {
  double rate = 0;              // What the others do, in samples a microsecond.
  double count = samples_left;  // With what the others are at.
  double soonest_us = std::numeric_limits<double>::infinity();  // That one has done one more.
  for (size_t other = 0; other < all.size(); ++other) {
    if (other == own || !all[other].goes_on) continue;
    if (all[other].pace_us == 0) return false;
    soonest_us = std::min(soonest_us, all[other].pace_us * (all[other].claims + 1));
    rate += all[other].samples / all[other].pace_us;
    count += all[other].claims * all[other].samples;
  }
  if (rate == 0) return false;
  // A claim takes as long as a whole one, however few samples are left.
  const double others_us = std::max(count / rate, samples_left > 0 ? soonest_us : 0);
  return all[own].pace_us * (all[own].claims + 1) > others_us;
}

}  // namespace skein::plans
