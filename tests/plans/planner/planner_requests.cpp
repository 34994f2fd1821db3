#include "planner_requests.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

double between(Rng& rng, double low, double high) { return low + (high - low) * rng.uniform(); }

Profile random_profile(Rng& rng) {
  Profile profile = even_profile(2 + static_cast<int64_t>(rng.below(8)), {});
  for (LayerProfile& layer : profile.layers) {
    const double forward_us = between(rng, 20, 300);
    layer.at = {{forward_us, forward_us * between(rng, 0.5, 1.5), forward_us}};
    layer.activation_row_bytes = 1 + static_cast<int64_t>(rng.below(40'000));
    layer.stash_row_bytes = layer.activation_row_bytes * 3;
    layer.parameter_bytes = static_cast<int64_t>(rng.below(400'000));
  }
  if (rng.below(4) == 0) {  // Small numbers of rows are less efficient.
    profile.rows = {1, 8};
    for (LayerProfile& layer : profile.layers) {
      LayerTimes many = layer.at[0];
      many.forward_us *= 5;
      many.backward_input_us *= 5;
      many.backward_weight_us *= 5;
      layer.at.push_back(many);
    }
  }
  profile.update_us_per_byte = 1e-5;
  if (rng.below(4) == 0) {
    profile.tied_bytes =
        std::min(profile.layers.front().parameter_bytes, profile.layers.back().parameter_bytes);
  }
  return profile;
}

ClusterSpec random_cluster(Rng& rng) {
  std::vector<std::vector<double>> speeds(1 + rng.below(3));
  for (std::vector<double>& host : speeds) {
    for (uint64_t i = 0; i <= rng.below(2); ++i) host.push_back(between(rng, 0.25, 2.0));
  }
  ClusterSpec cluster = cluster_of(speeds);
  for (ClusterHost& host : cluster.hosts) {
    host.inside = {between(rng, 1e8, 1e10), between(rng, 0, 20)};
    host.network = {between(rng, 5e7, 2e9), between(rng, 0, 50)};
  }
  if (cluster.hosts.size() > 1 && rng.below(2) == 0) {
    cluster.links.push_back({0, 1, {between(rng, 2e7, 1e9), 30}});
  }
  return cluster;
}

}  // namespace

Profile even_profile(int64_t layers, const LayerByHand& layer) {
  Profile profile;
  profile.source = "written by hand";
  profile.device = "a device";
  profile.rows = {1};
  for (int64_t l = 0; l < layers; ++l) {
    LayerProfile& own = profile.layers.emplace_back();
    own.name = "layer " + std::to_string(l);
    own.at = {{layer.forward_us, layer.backward_us / 2, layer.backward_us / 2}};
    own.activation_row_bytes = layer.activation_bytes;
    own.stash_row_bytes = layer.stash_bytes;
    own.parameter_bytes = layer.parameter_bytes;
  }
  return profile;
}

ClusterSpec cluster_of(const std::vector<std::vector<double>>& host_speeds) {
  ClusterSpec cluster;
  for (const std::vector<double>& speeds : host_speeds) {
    const auto host = static_cast<int32_t>(cluster.hosts.size());
    cluster.hosts.push_back({"host " + std::to_string(host), {1e15, 0}, {1e15, 0}});
    for (double speed : speeds) {
      ClusterDevice& device = cluster.devices.emplace_back();
      device.name = "device " + std::to_string(cluster.devices.size());
      device.host = host;
      device.speed = speed;
    }
  }
  return cluster;
}

void set_bandwidths(ClusterSpec& cluster, double inside, double network) {
  for (ClusterHost& host : cluster.hosts) {
    host.inside = {inside, 0};
    host.network = {network, 0};
  }
}

PlanRequest request_of(Profile profile, ClusterSpec cluster, int64_t batch_rows, int64_t rows_max) {
  PlanRequest request;
  request.profile = std::move(profile);
  request.cluster = std::move(cluster);
  request.global_batch_rows = batch_rows;
  for (int64_t rows = 1; rows <= rows_max; ++rows) {
    if (batch_rows % rows == 0) request.microbatch_rows.push_back(rows);
  }
  request.simulation.keeps_records = false;
  return request;
}

PlanRequest random_request(uint64_t seed) {
  Rng rng(seed);
  const int64_t batches[] = {8, 12, 16, 24};
  PlanRequest request =
      request_of(random_profile(rng), random_cluster(rng), batches[rng.below(4)], 8);
  if (rng.below(2) == 0) {
    const double need = 4e5 * static_cast<double>(request.profile.layers.size());
    for (ClusterDevice& device : request.cluster.devices) {
      device.memory_bytes = static_cast<int64_t>(need * between(rng, 0.3, 3.0));
    }
  }
  request.may_recompute = rng.below(2) == 0;
  request.simulation.bucketed_reduction = rng.below(2) == 0;
  request.simulation.action_overhead_us = rng.below(2) == 0 ? 0 : 10;
  if (rng.below(2) == 0) request.schedules.push_back(ScheduleKind::k1F1BPB);
  if (rng.below(4) == 0) request.schedules.push_back(ScheduleKind::kInterleaved1F1B);
  if (rng.below(4) == 0) request.schedules.push_back(ScheduleKind::kGreedy);
  if (rng.below(4) == 0) request.schedules.push_back(ScheduleKind::kZBH1);
  return request;
}

double simulated_us(const Plan& plan, const PlanRequest& request) {
  if (!check_memory(plan, request.profile, request.cluster).ok()) {
    return std::numeric_limits<double>::infinity();
  }
  return simulate(plan, request.profile, request.cluster, request.simulation).value().step_us;
}

}  // namespace skein::plans
