#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/policies/trials.hpp"

namespace skein::bench {

/// H0 to H3 of the heterogeneity suite; H1 sleeps, with probability 0.1 before each piece, for
/// twice a step's compute; H2 is one pipeline replica, four times slower; H3's sleep is twice a
/// step's compute, too.
constexpr uint32_t kScenarioCount = 4;
plans::PipelineScenario scenario_of(const plans::PipelineLayout& layout, uint32_t number,
                                    uint64_t seed);

/// Every policy of the table: what a job can select, and forms of others' that are compared with.
std::vector<NamedPolicy> compared_policies(OptimizerChoice::Kind optimizer);
/// All-reduce, and what no job can select: "auto" that is told that parts are unlike, and
/// overlapped averages of moments besides weights.
std::vector<NamedPolicy> unselectable_policies(OptimizerChoice::Kind optimizer);

/// How the table is measured. Learning rates are tuned for each policy, scenario and kind of parts:
/// the same grid, the same seeds, and no run for longer than `duration_us`.
struct ComparisonOptions {
  plans::PipelineLayout layout{8, 1};
  std::vector<NamedPolicy> policies;
  std::vector<uint32_t> scenarios = {0, 1, 2, 3};
  std::vector<bool> skews = {false, true};
  OptimizerChoice::Kind optimizer = OptimizerChoice::Kind::kMomentum;
  std::vector<double> lr_grid;
  std::vector<uint64_t> tuning_seeds = {101, 102, 103, 104};
  std::vector<uint64_t> seeds = {1, 2, 3, 4, 5};
  uint64_t batch = 8;
  double target_loss = 0;  // On what is held out; fixed before the runs.
  double duration_us = 0;
  double communication = 1;
  double evaluate_every_us = 100'000;
  uint32_t threads = 2;
  bool stops_at_target = false;  // Runs for the table, too: no accuracy at the end.
};

/// One policy in one scenario on one kind of parts.
struct ComparisonRow {
  std::string policy, scenario;
  bool is_skewed = false;
  double lr = 0;
  bool lr_is_at_edge = false;  // It lies at the edge of the grid, so another one might be better.
  std::vector<double> target_us;       // By seed; the duration if it was missed.
  uint64_t reached = 0;                // Seeds that reached the target.
  std::vector<double> target_samples;  // By seed that reached it.
  double steps_per_second = 0;         // Means over the seeds from here on.
  double staleness = 0;
  double steps_min = 0, steps_max = 0;  // A pipeline replica's, so that of its samples, in batches.
  double accuracy = 0;                  // At the end of the duration.
  double speed = 0;                     // Median time of all-reduce, divided by ours.
  double target_median_us() const;
  double target_samples_median() const;
};

/// Of every policy, scenario and kind of parts, in the order of `compare`: the learning rate with
/// the least mean time to the target over the tuning seeds, a miss counting twice the duration.
struct TunedRate {
  size_t number = 0;  // In the grid.
  uint64_t misses = 0;
};
std::vector<TunedRate> tune(const TaskMaker& make_task, const ComparisonOptions& options);

/// Rows in the order of parts, scenarios, policies; the first policy is what speeds refer to.
std::vector<ComparisonRow> compare(const TaskMaker& make_task, const ComparisonOptions& options);

void print_rows(const std::vector<ComparisonRow>& rows, const ComparisonOptions& options);
void write_csv(const std::vector<ComparisonRow>& rows, std::FILE* file);

/// Lowest held-out loss of every policy over the grid, with seeds that nothing else uses: what the
/// target has to be above.
void print_ceilings(const TaskMaker& make_task, ComparisonOptions options);

}  // namespace skein::bench
