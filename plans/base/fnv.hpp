#pragma once

#include <cstdint>

namespace skein::plans {

/// FNV-1a with 64 bits (Fowler, Noll and Vo), by which runs, data and streams of random numbers are
/// told apart. A digest begins as `kFnvOffset`.
constexpr uint64_t kFnvOffset = 0xcbf29ce484222325;

/// The digest with `value` added: a byte as in the original, or a number as a whole.
constexpr uint64_t add_to_fnv(uint64_t digest, uint64_t value) {
  return (digest ^ value) * 0x100000001b3;
}

}  // namespace skein::plans
