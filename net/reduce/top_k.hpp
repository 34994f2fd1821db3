#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace skein::net {

/// The `k` largest magnitudes of `values`, by a search for a threshold that counts in a few passes
/// how many values reach it. Source: MSTopK of Shi et al., MLSys'21.
/// Differs: the first thresholds come from a sample, where the paper bisects from the mean to the
/// maximum; several are counted in one pass; and when few values are left between two thresholds
/// the cut is found exactly, where the paper takes a run at a random offset. So the result is the
/// exact top k, and no random state is needed.
///
/// `values`    [n]  finite, n < 2^32.
/// `indices`        set to min(k, n) indices in ascending order; of equal magnitudes, the lower
///                  index is chosen.
/// Cost             3 passes over `values` for smooth distributions, at most 18.
void select_top_k(std::span<const float> values, size_t k, std::vector<uint32_t>& indices);

/// Whether no value is infinite or NaN.
bool are_finite(std::span<const float> values);

/// The number of values that are sent of `floats`: at least one, unless there is none.
size_t top_k_count(double density, size_t floats);

}  // namespace skein::net
