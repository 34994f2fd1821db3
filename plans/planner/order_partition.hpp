#pragma once

#include <cstdint>
#include <vector>

#include "plans/planner/candidate_cost.hpp"
#include "plans/planner/candidate_plan.hpp"

namespace skein::plans {

/// What a partition is asked for.
struct PartitionQuestion {
  int64_t rows = 0;
  bool recompute = false;
  bool one_stash = false;  // A stage needs room for one stash only, not for those of 1F1B.
};

/// Partitions of the layers over an order of devices, stages being runs of neighbours in the order
/// and devices may stay unused: for each of a grid of limits on the time that a stage takes for a
/// micro-batch, the partition with the smallest sum of the stages' and transfers' times (what
/// filling and draining cost), among those that fit the memory. Large problems are coarsened: at
/// most `kPartitionUnits` runs of devices and `kPartitionBlocks` runs of layers.
///
/// The recurrence over suffixes, with the limit T on the slowest stage as parameter instead of the
/// value (PipeDream's), prices what PipeDream's ignores.
/// Returns   the distinct candidate plans, rows by `split_rows`, schedule not set.
/// Cost      O(limits * blocks^2 * units^2).
std::vector<CandidatePlan> partitions_of_order(CostModel& model, const std::vector<int32_t>& order,
                                               const PartitionQuestion& question);

inline constexpr int64_t kPartitionUnits = 16;
inline constexpr int64_t kPartitionBlocks = 40;

}  // namespace skein::plans
