#include "plans/stragglers/stalls.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "plans/base/upper_median.hpp"

namespace skein::plans {
namespace {

constexpr double kStallsBeyond = 1.5;  // Times what is typical; as in `measure_stragglers`.
constexpr size_t kBeside = 4;  // Steps on either side; the detector waits for six slow ones.

}  // namespace

std::vector<StepRatios> stalls_of(const std::deque<StepRatios>& steps) {
  std::vector<StepRatios> stalls(steps.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    const size_t first = s - std::min(s, kBeside);
    const size_t end = std::min(steps.size(), s + kBeside + 1);
    for (const auto& [worker, ratio] : steps[s]) {
      std::vector<double> near;
      for (size_t other = first; other < end; ++other) {
        const auto found = steps[other].find(worker);
        if (found != steps[other].end()) near.push_back(found->second);
      }
      const double typical = upper_median(std::move(near));
      if (ratio > kStallsBeyond * typical) stalls[s][worker] = ratio / typical;
    }
  }
  return stalls;
}

std::vector<ClusterSpec> disturbed_clusters(const ClusterSpec& cluster,
                                            const std::vector<WorkerId>& workers,
                                            const std::vector<StepRatios>& steps) {
  std::vector<ClusterSpec> clusters;
  for (const StepRatios& step : steps) {
    ClusterSpec& disturbed = clusters.emplace_back(cluster);
    for (size_t d = 0; d < workers.size(); ++d) {
      const auto ratio = step.find(workers[d]);
      if (ratio != step.end()) disturbed.devices[d].speed /= ratio->second;
    }
  }
  return clusters;
}

}  // namespace skein::plans
