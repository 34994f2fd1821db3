#pragma once

namespace skein::plans {

inline constexpr double kMicro = 1e-6;  // Seconds of a microsecond.
inline constexpr double kMicrosecondsPerSecond = 1e6;

}  // namespace skein::plans
