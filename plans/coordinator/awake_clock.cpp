#include "plans/coordinator/awake_clock.hpp"

#include <algorithm>
#include <utility>

namespace skein::plans {

uint64_t AwakeClock::now_us(uint64_t steady_us) {
  const uint64_t due_us = last_tick_us_ + period_us_;
  const uint64_t now = steady_us - paused_us_;
  if (now <= due_us + slack_us_) return told_us_ = now;
  // It has done nothing since the tick was due, or since it asked, if it was late already then.
  last_tick_us_ = told_us_ = std::max(due_us, told_us_);
  paused_us_ += now - told_us_;
  untaken_us_ += now - told_us_;
  return told_us_;
}

uint64_t AwakeClock::take_pause_us() { return std::exchange(untaken_us_, 0); }

}  // namespace skein::plans
