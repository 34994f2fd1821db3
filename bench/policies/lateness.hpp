#pragma once

#include <cmath>
#include <cstdint>

#include "plans/base/rng.hpp"

namespace skein::bench {

/// How much later a run notes that something has ended than it has: processes wait for a processor
/// before they look at their clock. Exponential; not thread-safe.
class Lateness {
 public:
  /// Four workers whose devices only sleep, 145 steps of 124 ms, on two virtual cores at a load of
  /// 8, Nov 2026: 8.4 ms beyond the shortest step in the mean, 3.7 in the median, 25 for one in
  /// ten. (At real-time priority: 0.5, 0.3 and 0.6 ms.)
  static constexpr double kMeanUs = 8400;

  explicit Lateness(uint64_t seed) : rng_(seed) {}
  uint64_t next_us() { return static_cast<uint64_t>(-kMeanUs * std::log(1 - rng_.uniform())); }

 private:
  plans::Rng rng_;
};

}  // namespace skein::bench
