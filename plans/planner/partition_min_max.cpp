#include "plans/planner/partition_min_max.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

absl::Status check(std::span<const double> layer_cost, std::span<const double> worker_speed) {
  if (worker_speed.empty() || worker_speed.size() > layer_cost.size()) {
    return absl::InvalidArgumentError(absl::StrCat(layer_cost.size(), " layers cannot fill ",
                                                   worker_speed.size(),
                                                   " stages; use fewer workers, at least one"));
  }
  for (double cost : layer_cost) {
    if (!std::isfinite(cost) || cost < 0) {
      return absl::InvalidArgumentError(absl::StrCat("a layer cost of ", cost, " is out of range"));
    }
  }
  for (double speed : worker_speed) {
    if (!std::isfinite(speed) || speed <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("a speed of ", speed, " is out of range"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<LayerRange>> partition_min_max(std::span<const double> layer_cost,
                                                          std::span<const double> worker_speed) {
  if (absl::Status status = check(layer_cost, worker_speed); !status.ok()) return status;
  const size_t layers = layer_cost.size();
  const size_t workers = worker_speed.size();
  std::vector<double> sum(layers + 1, 0);
  for (size_t l = 0; l < layers; ++l) sum[l + 1] = sum[l] + layer_cost[l];
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[p][l]: slowest stage when the first p workers hold the first l layers.
  std::vector<std::vector<double>> best(workers + 1, std::vector<double>(layers + 1, kNever));
  std::vector<std::vector<size_t>> cut(workers + 1, std::vector<size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (size_t p = 1; p <= workers; ++p) {
    for (size_t l = p; l <= layers; ++l) {
      for (size_t k = p - 1; k < l; ++k) {
        const double slowest = std::max(best[p - 1][k], (sum[l] - sum[k]) / worker_speed[p - 1]);
        if (slowest < best[p][l]) {  // On a tie the earlier cut stays.
          best[p][l] = slowest;
          cut[p][l] = k;
        }
      }
    }
  }
  std::vector<LayerRange> ranges(workers);
  size_t end = layers;
  for (size_t p = workers; p > 0; --p) {
    const size_t begin = cut[p][end];
    ranges[p - 1] = {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
    end = begin;
  }
  return ranges;
}

}  // namespace skein::plans
