#pragma once

namespace skein::plans {

/// Whether state machines sweep all of their invariants after every event. Debug builds do; the
/// fault simulation does it in every build.
#ifdef NDEBUG
inline constexpr bool kDebugChecks = false;
#else
inline constexpr bool kDebugChecks = true;
#endif

}  // namespace skein::plans
