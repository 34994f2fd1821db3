#include "plans/modes/last_claim.hpp"

namespace skein::plans {

bool would_be_last(const std::vector<PipelinePace>& all, size_t own, double claims_left) {
  double rate = 0;             // What the others do, in claims a microsecond.
  double count = claims_left;  // With what the others are at.
  for (size_t other = 0; other < all.size(); ++other) {
    if (other == own || !all[other].goes_on) continue;
    if (all[other].busy_us == 0) return false;
    rate += 1 / all[other].busy_us;
    count += all[other].claims;
  }
  return rate > 0 && all[own].busy_us * (all[own].claims + 1) > count / rate;
}

}  // namespace skein::plans
