#pragma once

#include <cstdint>
#include <vector>

#include "plans/planner/planner.hpp"

namespace skein::plans {

/// What a layer of a profile by hand costs, for one row.
struct LayerByHand {
  double forward_us = 100;
  double backward_us = 200;  // Half of it for the input, half for the weights.
  int64_t activation_bytes = 1000;
  int64_t stash_bytes = 4000;
  int64_t parameter_bytes = 100'000;
};

/// Equal layers, times in proportion to rows.
Profile even_profile(int64_t layers, const LayerByHand& layer);

/// One host per entry, its devices' speeds; links so fast that they do not matter.
ClusterSpec cluster_of(const std::vector<std::vector<double>>& host_speeds);

/// Sets the bandwidths of all hosts, bytes per second, no latency.
void set_bandwidths(ClusterSpec& cluster, double inside, double network);

/// The micro-batches may have any number of rows that divides the batch, up to `rows_max`.
PlanRequest request_of(Profile profile, ClusterSpec cluster, int64_t batch_rows, int64_t rows_max);

/// Up to 6 devices of unlike speeds on up to 3 hosts with unlike links, up to 9 unlike layers, half
/// of the requests with memory limits, some with recomputation, virtual stages or tied parameters.
PlanRequest random_request(uint64_t seed);

/// Step time of a plan in the request's simulation; infinity if it does not fit the memory.
double simulated_us(const Plan& plan, const PlanRequest& request);

}  // namespace skein::plans
