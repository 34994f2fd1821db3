#pragma once

#include <cstdint>
#include <vector>

#include "plans/plan/plan.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// One layer per stage: times of a micro-batch of `rows` rows, I being a third and W two thirds of
/// B. Nothing has a size.
Profile equal_layers(int64_t layers, double forward_us, double backward_us, int64_t rows);

/// Devices of speed 1 on hosts of `per_host`, joined by `bytes_per_second` everywhere.
ClusterSpec equal_cluster(int32_t devices, int32_t per_host, double bytes_per_second);

/// A plan with `replicas[s]` copies of stage s, which has `layers[s]` layers; rows as even as can
/// be, workers in order. M micro-batches of B rows.
struct PipelineShape {
  std::vector<int64_t> layers;
  std::vector<int64_t> replicas;
  int64_t M = 1;
  int64_t B = 1;
  bool tied = false;
  bool recompute = false;
  ScheduleKind schedule = ScheduleKind::k1F1B;
};
Plan pipeline(const PipelineShape& shape);
/// S stages of one layer and one replica.
Plan straight_pipeline(int64_t S, int64_t M, ScheduleKind schedule);

/// `ranks` ranks that hold every `ranks`-th of the stages: each rank runs the forwards of its
/// stages in ascending order, then the backwards in descending order.
Plan looped_pipeline(PipelineShape shape, int64_t ranks);
/// Replaces each B by an I; the Ws stand at the end of the lists.
void split_backwards(Plan& plan);

}  // namespace skein::plans
