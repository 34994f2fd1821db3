#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace skein::net {

/// A range of floats, [begin, end).
struct FloatRange {
  size_t begin = 0;
  size_t end = 0;
  size_t count() const { return end - begin; }
  bool operator==(const FloatRange&) const = default;
};

/// Piece `index` of `floats` floats that are cut into `count` pieces of one size; the last ones may
/// be smaller or empty. The pieces tile [0, floats) in order.
inline FloatRange piece_of(size_t floats, size_t index, size_t count) {
  const size_t piece_max = (floats + count - 1) / count;
  const size_t begin = std::min(floats, index * piece_max);
  return {begin, std::min(floats, begin + piece_max)};
}

/// The floats of that piece; none where `index` is `count` or more.
inline std::span<float> piece_of(std::span<float> values, size_t index, size_t count) {
  const FloatRange range = piece_of(values.size(), index, count);
  return values.subspan(range.begin, range.count());
}

}  // namespace skein::net
