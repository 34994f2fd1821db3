#pragma once

#include <cstdint>

namespace skein::plans {

inline constexpr double kSecondsPerMicrosecond = 1e-6;
inline constexpr double kMicrosecondsPerSecond = 1e6;
inline constexpr uint64_t kSecondUs = 1'000'000;  // Times in whole microseconds.

}  // namespace skein::plans
