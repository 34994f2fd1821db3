#include "plans/modes/last_claim.hpp"

namespace skein::plans {

bool would_be_last(const std::vector<PipelinePace>& all, size_t own, double samples_left) {
  double rate = 0;              // What the others do, in samples a microsecond.
  double count = samples_left;  // With what the others are at.
  for (size_t other = 0; other < all.size(); ++other) {
    if (other == own || !all[other].goes_on) continue;
    if (all[other].busy_us == 0) return false;
    rate += all[other].samples / all[other].busy_us;
    count += all[other].claims * all[other].samples;
  }
  return rate > 0 && all[own].busy_us * (all[own].claims + 1) > count / rate;
}

}  // namespace skein::plans
