#include "bench/policies/sanity.hpp"

#include <algorithm>
#include <cstdio>

namespace skein::bench {
namespace {

constexpr double kMeanErrorMax = 1e-6;  // Relative: rounding of float32.

Trial trial_of(const ComparisonOptions& options, const NamedPolicy& policy, uint32_t scenario) {
  Trial trial{.policy = policy,
              .scenario = scenario_of(options.layout, scenario, 1),
              .duration_us = options.duration_us};
  trial.training = {.layout = options.layout,
                    .optimizer = {options.optimizer, options.lr_grid[0]},
                    .batch = options.batch,
                    .stop_at_loss = options.target_loss,
                    .checks_means = true};
  return trial;
}

}  // namespace

bool check_policies(const TaskMaker& make_task, const ComparisonOptions& options) {
  constexpr size_t kEach = 3;  // Undisturbed, and disturbed twice.
  std::vector<Trial> trials;
  for (const NamedPolicy& policy : options.policies) {
    for (const uint32_t scenario : {0, 1, 1}) {
      trials.push_back(trial_of(options, policy, scenario));
    }
  }
  const std::vector<TrialResult> results = run_trials(make_task, trials, options.threads);
  bool holds = true;
  const auto require = [&](bool claim, const NamedPolicy& policy, const char* what, double value) {
    if (claim) return;
    holds = false;
    std::printf("%ux%u %s: %s (%g)\n", options.layout.pipelines, options.layout.stages,
                policy.name.c_str(), what, value);
  };
  for (size_t p = 0; p < options.policies.size(); ++p) {
    const NamedPolicy& policy = options.policies[p];
    const TrialResult& calm = results[kEach * p];
    const TrialResult& first = results[kEach * p + 1];
    const TrialResult& second = results[kEach * p + 2];
    require(calm.time_to_loss_us(options.target_loss).has_value(), policy,
            "misses the target loss; the last one is", calm.points.back().score.loss);
    require(calm.mean_error <= kMeanErrorMax && first.mean_error <= kMeanErrorMax, policy,
            "an average changes the mean", std::max(calm.mean_error, first.mean_error));
    require(first.points == second.points, policy, "does not repeat bit for bit; points",
            static_cast<double>(first.points.size()));
  }
  return holds;
}

}  // namespace skein::bench
