// What the simulator predicts of the jobs of bench/crossover.py and bench/bubbles.py: one line of
// numbers.
//   shared_rate crossover COMPUTE_US EXPOSED_US LAYERS MICRO_BATCHES BUCKETED TURNS
//     how many times as fast two such jobs are together as one after the other
//   shared_rate bubbles FORWARD_US BACKWARD_US SHARE MICRO_BATCHES
//     the part of the first job's idle time that is used, and how much slower it is
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "plans/simulator/shared_simulation.hpp"
#include "tests/plans/simulator/pipelines.hpp"

namespace skein::plans {
namespace {

constexpr int32_t kSteps = 60;
constexpr int64_t kLayerBytes = 1'000'000;
constexpr int64_t kRows = 4;

SharedSimulation run(const std::vector<SharedJob>& jobs, const ClusterSpec& cluster) {
  auto found = simulate_shared(jobs, cluster, kSteps);
  if (found.ok()) return *std::move(found);
  std::fprintf(stderr, "%s\n", std::string(found.status().message()).c_str());
  std::exit(1);
}

/// Two replicas, each with half of the rows; their ring takes `exposed_us` for all gradients.
void predict_crossover(const std::vector<double>& asked) {
  const auto layers = static_cast<int64_t>(asked[2]);
  const auto microbatches = static_cast<int64_t>(asked[3]);
  const double piece_us = asked[0] / static_cast<double>(microbatches * layers) * 2;
  SharedJob job;
  job.plan = pipeline({.layers = {layers}, .replicas = {2}, .M = microbatches, .B = kRows});
  job.profile = equal_layers(layers, piece_us / 3, piece_us * 2 / 3, kRows);
  for (LayerProfile& each : job.profile.layers) each.parameter_bytes = kLayerBytes;
  job.options.bucketed_reduction = asked[4] > 0;
  job.sharing.takes_turns = asked[5] > 0;
  const double bytes = static_cast<double>(layers * kLayerBytes);
  const SharedSimulation found = run({job, job}, equal_cluster(2, 1, bytes / asked[1] * 1e6));
  std::printf("%.6f\n", found.speedup);
}

/// A pipeline of four stages, and beside it four replicas of one, whose pieces take a share.
void predict_bubbles(const std::vector<double>& asked) {
  constexpr double kFast = 1e12;
  SharedJob first;
  first.plan = straight_pipeline(4, 4, ScheduleKind::k1F1B);
  first.profile = equal_layers(4, asked[0], asked[1], 1);
  first.sharing.priority = 1;
  SharedJob second;
  second.plan =
      pipeline({.layers = {1}, .replicas = {4}, .M = static_cast<int64_t>(asked[3]), .B = kRows});
  second.profile = equal_layers(1, kRows * asked[0] * asked[2], kRows * asked[1] * asked[2], kRows);
  second.profile.layers[0].parameter_bytes = 1;
  const SharedSimulation found = run({first, second}, equal_cluster(4, 1, kFast));
  std::printf("%.6f %.6f\n", found.used_idle, found.jobs[0].slower());
}

}  // namespace
}  // namespace skein::plans

int main(int argc, char** argv) {
  std::vector<double> numbers;
  for (int i = 2; i < argc; ++i) numbers.push_back(std::strtod(argv[i], nullptr));
  if (argc == 8 && std::strcmp(argv[1], "crossover") == 0) {
    skein::plans::predict_crossover(numbers);
  } else if (argc == 6 && std::strcmp(argv[1], "bubbles") == 0) {
    skein::plans::predict_bubbles(numbers);
  } else {
    std::fprintf(stderr, "the first lines of bench/shared_rate.cpp say what to give\n");
    return 2;
  }
  return 0;
}
