#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // As GCC says it.
#define SKEIN_IS_SANITIZED 1
#elif defined(__has_feature)  // As clang says it.
#define SKEIN_IS_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SKEIN_IS_SANITIZED 0
#endif

namespace skein::tests {

/// How many of `all` random cases, or how much of a long run, a test tries: a quarter where a
/// sanitizer watches, which takes ten times as long for each and looks for what nearly all contain.
constexpr uint64_t cases(uint64_t all) {
#if SKEIN_IS_SANITIZED
  return (all + 3) / 4;
#else
  return all;
#endif
}

}  // namespace skein::tests

#undef SKEIN_IS_SANITIZED
