#pragma once

#include <algorithm>
#include <cstdint>

namespace skein::plans {

/// What is told: so many at once, then one in each period. Both > 0.
struct EventLimits {
  uint64_t at_once = 10;
  uint64_t every_us = 5'000'000;
};

/// How many events of a kind that anybody can cause are told, and how many were not. Time is an
/// argument, in microseconds.
class EventRate {
 public:
  explicit EventRate(EventLimits limits = {}) : limits_(limits), left_(limits.at_once) {}

  /// True: tell this one.
  bool admit(uint64_t now_us) {
    refill(now_us);
    if (left_ == 0) {
      ++held_back_;
      return false;
    }
    --left_;
    return true;
  }
  /// How many were not told since the last time this was, if it is time to say so; else 0.
  uint64_t take_held_back(uint64_t now_us) {
    refill(now_us);
    if (held_back_ == 0 || left_ == 0) return 0;
    --left_;
    const uint64_t count = held_back_;
    held_back_ = 0;
    return count;
  }

 private:
  void refill(uint64_t now_us) {
    const uint64_t more = (now_us - std::min(now_us, filled_us_)) / limits_.every_us;
    if (more == 0) return;
    left_ = std::min(limits_.at_once, left_ + more);
    filled_us_ += more * limits_.every_us;
  }

  EventLimits limits_;
  uint64_t left_;
  uint64_t filled_us_ = 0;  // Up to when the rate is accounted for.
  uint64_t held_back_ = 0;
};

}  // namespace skein::plans
