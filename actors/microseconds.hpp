#pragma once

#include <chrono>
#include <cstdint>

namespace skein::actors {

/// The steady clock, which actors' clocks are, as the state machines and the messages count it.
inline uint64_t to_us(std::chrono::steady_clock::time_point time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

}  // namespace skein::actors
