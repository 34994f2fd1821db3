#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "plans/base/rng.hpp"

namespace skein::plans {

/// When a worker that has lost its coordinator connects anew, and when it gives up. That somebody
/// accepts the connection is no recovery: only an answer to a Join is. A state machine without
/// clock or I/O; times are microseconds of one steady clock.
class ReconnectBackoff {
 public:
  /// Workers with unlike seeds do not come at the same moment.
  explicit ReconnectBackoff(uint64_t seed) : rng_(seed) {}

  struct Attempt {
    double delay_seconds = 0;  // Before it.
    double left_seconds = 0;   // Then, for it and those that follow; <= 0: give up.
  };
  /// The next attempt, which the caller calls `number`, of those that may last for
  /// `patience_seconds` together. The first one is at once, the tenth and those behind it more than
  /// a second after the one before.
  Attempt begin(uint64_t number, double patience_seconds, uint64_t now_us) {
    newest_ = number;
    if (!since_us_) since_us_ = now_us;
    // Whoever answers and closes at once is not asked at once either.
    const bool has_lasted = count_ > 0 && now_us >= last_us_ + kSteadyUs;
    if (is_answered_ && has_lasted) count_ = 0;
    is_answered_ = false;
    last_us_ = now_us;
    const double waited = static_cast<double>(now_us - std::min(now_us, *since_us_)) * 1e-6;
    Attempt attempt;
    if (count_ > 0) {
      const double steady =
          kFirstSeconds * static_cast<double>(uint64_t{1} << std::min(count_, kDoublings));
      attempt.delay_seconds = steady * (1 + kJitter * rng_.uniform());
    }
    ++count_;
    attempt.left_seconds = patience_seconds - waited - attempt.delay_seconds;
    return attempt;
  }
  /// What comes on the links of older ones is late.
  bool is_newest(uint64_t number) const { return number == newest_; }
  /// The coordinator has answered a Join of the newest attempt.
  void on_joined() {
    since_us_.reset();
    is_answered_ = true;
  }

 private:
  static constexpr double kFirstSeconds = 0.05;
  static constexpr uint64_t kDoublings = 5;  // Up to 1.6 s.
  static constexpr double kJitter = 0.5;
  static constexpr uint64_t kSteadyUs = 10'000'000;

  Rng rng_;
  uint64_t newest_ = 0;               // The number of the last attempt.
  std::optional<uint64_t> since_us_;  // None: there is a coordinator that has answered.
  bool is_answered_ = false;          // Since the last attempt.
  uint64_t last_us_ = 0;              // When that was.
  uint64_t count_ = 0;                // Attempts since there was one that lasted.
};

}  // namespace skein::plans
