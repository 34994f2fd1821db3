#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plans/planner/layer_sums.hpp"

namespace skein::plans {

/// Cuts between stages of given speeds, so that the slowest stage takes as little as possible for a
/// micro-batch of `rows` rows: F + B of the stage's layers / speed. Answers as `partition_min_max`
/// but for ties and a relative 1e-9, in O(30 S L) instead of O(S L^2): a search asks for thousands.
///
/// `stage_speed`  [S]  > 0; S <= L.
/// Returns        [S + 1] first layer of each stage, ends with L.
std::vector<int64_t> balanced_cuts(LayerSums& sums, int64_t rows,
                                   std::span<const double> stage_speed);

}  // namespace skein::plans
