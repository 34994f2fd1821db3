#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace skein::bench {

/// One value of a sample's gradient in a step: a small whole number, so that sums are exact and the
/// same however samples are spread over ranks.
inline float gradient_value(int64_t step, int64_t sample, int64_t element) {
  return static_cast<float>((step * 31 + sample * 17 + element * 7) % 13 - 6);
}

/// Adds the gradients of samples [first, first + count).
inline void add_gradients(int64_t step, int64_t first, int64_t count, std::vector<float>& values) {
  for (int64_t sample = first; sample < first + count; ++sample) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += gradient_value(step, sample, static_cast<int64_t>(i));
    }
  }
}

/// FNV-1a of the bits.
inline uint64_t digest(std::span<const float> values) {
  uint64_t hash = 14695981039346656037U;
  for (float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 1099511628211U;
  }
  return hash;
}

}  // namespace skein::bench
