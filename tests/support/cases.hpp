#pragma once

#include <cstdint>

namespace skein::tests {

/// How many of `all` random cases, or how much of a long run, a test tries: a quarter where a
/// sanitizer watches, which takes ten times as long for each and looks for what nearly all contain.
constexpr uint64_t cases(uint64_t all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // As GCC says it.
  return (all + 3) / 4;
#elif defined(__has_feature)  // As clang says it.
  return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? (all + 3) / 4 : all;
#else
  return all;
#endif
}

}  // namespace skein::tests
