#pragma once

#include <cstdint>

namespace skein::plans {

/// A clock that stands still while its process is paused, which it sees by a tick that is late:
/// nothing that is due or measured by it has a pause in it. Microseconds of one steady clock in, of
/// the time awake out, which never goes back; no clock or I/O of its own.
class AwakeClock {
 public:
  /// Ticks are to come every `period_us`, and may be `slack_us` late.
  AwakeClock(uint64_t period_us, uint64_t slack_us, uint64_t steady_us)
      : period_us_(period_us), slack_us_(slack_us), last_tick_us_(steady_us), told_us_(steady_us) {}

  /// The time awake. Who asks first after a pause finds it.
  uint64_t now_us(uint64_t steady_us);
  void on_tick(uint64_t steady_us) { last_tick_us_ = now_us(steady_us); }
  /// The pauses that were found since the last call, in all.
  uint64_t take_pause_us();

 private:
  const uint64_t period_us_;
  const uint64_t slack_us_;
  uint64_t last_tick_us_;   // By the time awake, as the next.
  uint64_t told_us_;        // The newest answer.
  uint64_t paused_us_ = 0;  // All pauses so far.
  uint64_t untaken_us_ = 0;
};

}  // namespace skein::plans
