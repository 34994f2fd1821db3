#include "bench/policies/worth.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "plans/simulator/consensus_distance.hpp"
#include "plans/sync/policy_choice.hpp"

namespace skein::bench {
namespace {

using plans::WorthConstants;

/// One constant, and what says something of it.
struct WorthKind {
  const char* name;
  OptimizerChoice::Kind optimizer;
  bool is_skewed;  // Then moments are averaged.
  std::vector<uint32_t> pipelines;
  std::vector<uint64_t> local_steps;
  double WorthConstants::*constant;
};

std::vector<WorthKind> worth_kinds() {
  using Kind = OptimizerChoice::Kind;
  return {{"AdamW, shuffled: N to the power of -c",
           Kind::kAdamw,
           false,
           {2, 4, 8, 16},
           {1},
           &WorthConstants::adaptive_exponent},
          {"momentum, shuffled: 1 / (1 + c distance)",
           Kind::kMomentum,
           false,
           {8},
           {1, 4, 16},
           &WorthConstants::loss_on_like_parts},
          {"momentum, averaged, skewed: 1 / (1 + c distance)",
           Kind::kMomentum,
           true,
           {8},
           {1, 4, 16},
           &WorthConstants::loss_with_moments}};
}

struct WorthCell {
  uint32_t pipelines = 0;
  uint64_t local_steps = 0;
  double lr = 0;
  bool lr_is_at_edge = false;
  double distance = 0;
  double worth = 0;  // 0: not all seeds came to the target.
};

NamedPolicy overlapped(uint64_t local_steps, bool averages_moments) {
  return {"overlapped",
          [local_steps, averages_moments](const plans::PipelineLayout& layout, uint64_t) {
            return std::make_unique<plans::OverlappedAveragePolicy>(
                layout, plans::overlapped_options({local_steps}, averages_moments));
          }};
}

double distance_of(const Trial& trial) {
  plans::ConsensusDistance distance(trial.training.layout, 0);
  const auto policy = trial.policy.make(trial.training.layout, trial.training.seed);
  plans::simulate_policy(*policy, simulation_of(trial), &distance);
  return distance.mean();
}

std::vector<WorthCell> measure_cells(const WorthTask& task, const WorthKind& kind) {
  std::vector<WorthCell> cells;
  for (const uint32_t pipelines : kind.pipelines) {
    ComparisonOptions options = task.options;
    options.layout = {pipelines, 1};
    options.scenarios = {0};
    options.skews = {kind.is_skewed};
    options.optimizer = kind.optimizer;
    options.lr_grid =
        kind.optimizer == OptimizerChoice::Kind::kAdamw ? task.adam_rates : task.momentum_rates;
    options.stops_at_target = true;
    options.policies = {allreduce()};
    for (const uint64_t each : kind.local_steps) {
      options.policies.push_back(overlapped(each, kind.is_skewed));
    }
    const std::vector<ComparisonRow> rows = compare(task.make_task, options);
    for (size_t r = 1; r < rows.size(); ++r) {
      Trial trial{.policy = options.policies[r], .scenario = scenario_of(options.layout, 0, 1)};
      trial.training = {.layout = options.layout, .optimizer = {kind.optimizer}};
      trial.duration_us = rows[r].target_median_us();
      WorthCell cell{.pipelines = pipelines,
                     .local_steps = kind.local_steps[r - 1],
                     .lr = rows[r].lr,
                     .lr_is_at_edge = rows[r].lr_is_at_edge || rows[0].lr_is_at_edge,
                     .distance = distance_of(trial)};
      const size_t seeds = options.seeds.size();
      if (rows[0].reached == seeds && rows[r].reached == seeds) {
        cell.worth = rows[0].target_samples_median() / rows[r].target_samples_median();
      }
      cells.push_back(cell);
    }
  }
  return cells;
}

double predicted(const WorthKind& kind, const WorthCell& cell, const WorthConstants& constants) {
  return plans::progress_per_step(cell.distance,
                                  {.parts_are_unlike = kind.is_skewed,
                                   .averages_moments = kind.is_skewed,
                                   .is_adaptive = kind.optimizer == OptimizerChoice::Kind::kAdamw,
                                   .pipelines = cell.pipelines},
                                  constants);
}

/// Predicted by measured, of the cells that have a worth.
std::vector<double> ratios(const WorthKind& kind, const std::vector<WorthCell>& cells,
                           const WorthConstants& constants) {
  std::vector<double> ratios;
  for (const WorthCell& cell : cells) {
    if (cell.worth > 0) ratios.push_back(predicted(kind, cell, constants) / cell.worth);
  }
  return ratios;
}

/// With the least sum of squared logarithms.
WorthConstants fit(const WorthKind& kind, const std::vector<WorthCell>& cells) {
  constexpr double kStep = 0.001, kMost = 1;
  WorthConstants best;
  double least = std::numeric_limits<double>::infinity();
  for (double value = 0; value <= kMost; value += kStep) {
    WorthConstants constants;
    constants.*kind.constant = value;
    double sum = 0;
    for (const double each : ratios(kind, cells, constants)) sum += std::pow(std::log(each), 2);
    if (sum >= least) continue;
    least = sum;
    best = constants;
  }
  return best;
}

void print_judged(const WorthKind& kind, const std::string& from, const WorthConstants& constants,
                  const std::string& name, const std::vector<WorthCell>& cells) {
  double worst = 0;
  for (const double each : ratios(kind, cells, constants)) {
    if (std::abs(std::log(each)) > std::abs(std::log(1 + worst))) worst = each - 1;
  }
  std::printf("  c = %.3f, %-24s judged on %s: off by %+.0f %% at worst\n",
              constants.*kind.constant, (from + ",").c_str(), name.c_str(), 100 * worst);
}

void print_kind(const std::vector<WorthTask>& tasks, const WorthKind& kind) {
  std::printf("\n%s\n", kind.name);
  std::vector<std::vector<WorthCell>> cells;
  for (const WorthTask& task : tasks) {
    cells.push_back(measure_cells(task, kind));
    for (const WorthCell& cell : cells.back()) {
      std::printf("  %-5s %2u pipeline replicas, averages every %2llu steps: distance %5.2f, ",
                  task.name.c_str(), cell.pipelines,
                  static_cast<unsigned long long>(cell.local_steps), cell.distance);
      if (cell.worth > 0) {
        std::printf("worth %.2f, lr %g%s\n", cell.worth, cell.lr,
                    cell.lr_is_at_edge ? " (edge)" : "");
      } else {
        std::printf("target missed\n");
      }
    }
    std::fflush(stdout);
  }
  for (size_t from = 0; from < tasks.size(); ++from) {
    if (ratios(kind, cells[from], {}).empty()) {
      std::printf("  nothing to fit on %s: it missed the target\n", tasks[from].name.c_str());
      continue;
    }
    const WorthConstants constants = fit(kind, cells[from]);
    for (size_t on = 0; on < tasks.size(); ++on) {
      print_judged(kind, "fitted on " + tasks[from].name, constants, tasks[on].name, cells[on]);
    }
  }
  for (size_t on = 0; on < tasks.size(); ++on) {
    print_judged(kind, "the product's", {}, tasks[on].name, cells[on]);
  }
}

}  // namespace

void print_worth(const std::vector<WorthTask>& tasks) {
  for (const WorthKind& kind : worth_kinds()) print_kind(tasks, kind);
}

}  // namespace skein::bench
