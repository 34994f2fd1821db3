#pragma once

namespace skein::plans {

inline constexpr double kSecondsPerMicrosecond = 1e-6;
inline constexpr double kMicrosecondsPerSecond = 1e6;

}  // namespace skein::plans
