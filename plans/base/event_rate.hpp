#pragma once

#include <algorithm>
#include <cstdint>

namespace skein::plans {

/// How many events of a kind that anybody can cause are told, and how many were not: ten at once,
/// then one in five seconds. Time is an argument, in microseconds.
class EventRate {
 public:
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
  static constexpr uint64_t kAtOnce = 10;
  static constexpr uint64_t kEveryUs = 5'000'000;

  void refill(uint64_t now_us) {
    const uint64_t more = (now_us - std::min(now_us, filled_us_)) / kEveryUs;
    if (more == 0) return;
    left_ = std::min(kAtOnce, left_ + more);
    filled_us_ += more * kEveryUs;
  }

  uint64_t left_ = kAtOnce;
  uint64_t filled_us_ = 0;  // Up to when the rate is accounted for.
  uint64_t held_back_ = 0;
};

}  // namespace skein::plans
