#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skein::plans {

/// Gives every row a pipeline replica of its own so that the sum of the weights is largest.
/// Source: the Hungarian method with potentials (Kuhn 1955, Munkres 1957), adding row after row
/// along a cheapest augmenting path.
///
/// `weights`  [R][C]  R <= C; R times the largest size is at most 2^60.
/// Returns    [R]     the pipeline replica of each row. Which of several best ones is not promised,
/// but the
///                    same weights give the same one.
/// Cost               O(R^2 C) time, O(R + C) memory.
std::vector<size_t> best_assignment(const std::vector<std::vector<int64_t>>& weights);

}  // namespace skein::plans
