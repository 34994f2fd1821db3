#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace skein::plans {

/// The middle of the values in order; of an even number, the larger one of the two in the middle,
/// so that it is one that was measured. Not empty.
inline double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace skein::plans
