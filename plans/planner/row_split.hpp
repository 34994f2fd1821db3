#pragma once

#include <cstdint>
#include <vector>

#include "plans/planner/candidate_cost.hpp"

namespace skein::plans {

/// Rows of a micro-batch for each of `devices`, so that the slowest replica of a stage is as fast
/// as whole rows allow: a row at a time goes to the replica that is done first with it, which is
/// optimal where more rows never take less time. The time of r rows is that of the whole model.
///
/// `devices`  [r]  at most `rows`.
/// Returns    [r]  each >= 1, they add up to `rows`; on a tie the earlier replica gets the row.
/// Cost       O(r log r) for profiles of one number of rows, else O(rows log r).
std::vector<int64_t> split_rows(CostModel& model, const std::vector<int32_t>& devices,
                                int64_t rows);

/// A rank with rows by `split_rows`.
CandidateRank rank_of(CostModel& model, std::vector<int32_t> devices, int64_t rows);

}  // namespace skein::plans
