#include "plans/simulator/policy_rounds.hpp"

#include <algorithm>
#include <cmath>

#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

/// Updates of all pipeline replicas that a simulation does in some ten milliseconds.
constexpr double kUpdatesMax = 20000;
/// Enough to see a stall rate of a tenth.
constexpr uint64_t kIterationsSeen = 32;

/// From one update to the next, in the mean: what its slowest stage takes.
double iteration_us(const PolicySimulationOptions& options, uint32_t pipeline) {
  double longest_us = 0;
  for (uint32_t stage = 0; stage < options.layout.stages; ++stage) {
    double sum_us = 0;
    for (uint64_t iteration = 0; iteration < kIterationsSeen; ++iteration) {
      for (const bool is_backward : {false, true}) {
        const auto& work_us = is_backward ? options.backward_us : options.forward_us;
        const PipelinePiece piece{stage, pipeline, iteration, is_backward, work_us[stage]};
        sum_us += end_of_piece(options.scenario, options.layout, piece, 0);
      }
    }
    longest_us = std::max(longest_us, sum_us / kIterationsSeen + options.update_us);
  }
  return longest_us;
}

}  // namespace

double set_rounds(const JobSpec& job, double global_us, double rounds,
                  PolicySimulationOptions& options) {
  const double round_samples = std::max(
      1.0, std::round(static_cast<double>(job.training.global_batch_size) * round_steps_mean(job)));
  options.global_us = global_us;
  double samples_per_us = 0, updates_per_us = 0;
  for (uint32_t pipeline = 0; pipeline < options.layout.pipelines; ++pipeline) {
    const double own_us = iteration_us(options, pipeline);
    const uint64_t samples = options.claim_samples.empty() ? 1 : options.claim_samples[pipeline];
    samples_per_us += static_cast<double>(samples) / own_us;
    updates_per_us += 1 / own_us;
  }
  const double updating_us = round_samples / samples_per_us;
  const double round_us = updating_us + global_us;
  const bool has_rounds = rounds * updating_us * updates_per_us <= kUpdatesMax;
  options.round_samples = has_rounds ? static_cast<uint64_t>(round_samples) : 0;
  if (has_rounds) options.duration_us = std::max(options.duration_us, rounds * round_us);
  options.warm_up_us = options.duration_us / rounds;
  return has_rounds ? 1 : updating_us / round_us;
}

}  // namespace skein::plans
