#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/model_spec.hpp"

namespace skein::plans {

/// Splits layers into one contiguous stage per worker so that the slowest stage is as fast as
/// possible. Source: PipeDream, SOSP'19, section 3.1, without replication.
///
/// `layer_cost`    [L]  cost of a layer on a speed-1.0 worker, >= 0.
/// `worker_speed`  [P]  relative speed, > 0; 0.5 means half as fast. P <= L.
/// Returns         [P]  ranges that tile [0, L) in order; on a tie the earlier cut wins.
/// InvalidArgument      if P == 0, P > L, or a number is out of range.
/// Cost                 O(P * L^2) time, O(P * L) memory.
absl::StatusOr<std::vector<LayerRange>> partition_min_max(std::span<const double> layer_cost,
                                                          std::span<const double> worker_speed);

}  // namespace skein::plans
