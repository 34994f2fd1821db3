#pragma once

namespace skein::plans {

/// Whether the actors have their state machines sweep all invariants after every event
/// (`SKEIN_SWEEP` of CMake): so in builds for debugging and with sanitizers. What an event touched
/// is checked in all builds, and the fault simulation sweeps in all builds.
#ifdef SKEIN_SWEEP
inline constexpr bool kSweeps = true;
#else
inline constexpr bool kSweeps = false;
#endif

}  // namespace skein::plans
