#include "bench/fela/fela_baselines.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace skein::bench {
namespace {

using plans::LayerRange;
using plans::Profile;

/// When a worker that is to begin a step at `at_us` does.
double awake_us(const FelaCluster& cluster, uint32_t worker, uint32_t step, double at_us) {
  const plans::WorkPiece nothing{static_cast<int32_t>(worker), static_cast<int32_t>(step), 0, 0};
  return plans::end_of_work(cluster.scenario, nothing, static_cast<int32_t>(cluster.workers),
                            at_us);
}

double ring_us(const FelaCluster& cluster, uint32_t members, double bytes) {
  const double count = members;
  return 2 * (count - 1) / count * bytes / cluster.bytes_per_second * 1e6 +
         2 * (count - 1) * cluster.latency_us;
}

/// The layers' backward, the last one first, begun at `begin_us`, and a ring of `members` for each
/// as soon as it is there. When both are over.
double backward_and_reduce_us(const Profile& profile, LayerRange layers, int64_t rows,
                              double begin_us, uint32_t members, const FelaCluster& cluster) {
  double computed_us = begin_us, reduced_us = begin_us;
  for (int64_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    computed_us += plans::layer_times(profile, layer, rows).backward_us();
    const auto bytes =
        static_cast<double>(profile.layers[static_cast<size_t>(layer)].parameter_bytes);
    if (bytes == 0 || members < 2) continue;
    reduced_us = std::max(reduced_us, computed_us) + ring_us(cluster, members, bytes);
  }
  return std::max(computed_us, reduced_us);
}

int64_t share(int64_t samples, uint32_t workers) {
  return (samples + workers - 1) / static_cast<int64_t>(workers);
}

double hybrid_us(const Profile& profile, int64_t samples, const FelaCluster& cluster, int64_t cut,
                 uint32_t behind) {
  const auto layers = static_cast<int64_t>(profile.layers.size());
  const LayerRange front{0, cut}, back{cut, layers};
  const uint32_t ahead = cluster.workers - behind;
  const int64_t front_rows = share(samples, ahead), back_rows = share(samples, behind);
  const double row_us =
      static_cast<double>(profile.layers[static_cast<size_t>(cut) - 1].activation_row_bytes) /
      cluster.bytes_per_second * 1e6;
  double now_us = 0;
  for (uint32_t step = 0; step < cluster.steps; ++step) {
    std::vector<double> there_us;
    const double forward_us = plans::range_times(profile, front, front_rows).forward_us;
    for (uint32_t worker = 0; worker < ahead; ++worker) {
      there_us.push_back(awake_us(cluster, worker, step, now_us) + forward_us);
    }
    std::sort(there_us.begin(), there_us.end());
    // Outputs go to those behind the cut in turn, each of whom receives one thing at a time.
    double inputs_us = 0;
    for (double each_us : there_us) {
      inputs_us = std::max(inputs_us, each_us) + row_us * static_cast<double>(front_rows) / behind;
    }
    double begin_us = inputs_us + cluster.latency_us;
    for (uint32_t worker = ahead; worker < cluster.workers; ++worker) {
      begin_us = std::max(begin_us, awake_us(cluster, worker, step, now_us));
    }
    const plans::LayerTimes times = plans::range_times(profile, back, back_rows);
    const double gradient_us = begin_us + times.total_us();
    const double behind_end_us =
        std::max(gradient_us, backward_and_reduce_us(profile, back, back_rows,
                                                     begin_us + times.forward_us, behind, cluster));
    // The last of them gets its gradient when all have theirs.
    const double back_us =
        gradient_us + cluster.latency_us + row_us * static_cast<double>(back_rows);
    now_us = std::max(behind_end_us,
                      backward_and_reduce_us(profile, front, front_rows, back_us, ahead, cluster));
  }
  return now_us / cluster.steps;
}

}  // namespace

double data_parallel_us(const Profile& profile, int64_t samples, const FelaCluster& cluster) {
  const int64_t rows = share(samples, cluster.workers);
  const LayerRange all{0, static_cast<int64_t>(profile.layers.size())};
  double now_us = 0;
  for (uint32_t step = 0; step < cluster.steps; ++step) {
    double begin_us = now_us;
    for (uint32_t worker = 0; worker < cluster.workers; ++worker) {
      begin_us = std::max(begin_us, awake_us(cluster, worker, step, now_us));
    }
    begin_us += plans::range_times(profile, all, rows).forward_us;
    now_us = backward_and_reduce_us(profile, all, rows, begin_us, cluster.workers, cluster);
  }
  return now_us / cluster.steps;
}

double hybrid_us(const Profile& profile, int64_t samples, const FelaCluster& cluster) {
  double best_us = std::numeric_limits<double>::infinity();
  for (int64_t cut = 1; cut < static_cast<int64_t>(profile.layers.size()); ++cut) {
    for (uint32_t behind : {1u, 2u, 4u}) {
      if (behind >= cluster.workers) continue;
      best_us = std::min(best_us, hybrid_us(profile, samples, cluster, cut, behind));
    }
  }
  return best_us;
}

}  // namespace skein::bench
