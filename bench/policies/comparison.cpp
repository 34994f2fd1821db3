#include "bench/policies/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/policies/auto_policy.hpp"
#include "plans/sync/overlapped_average.hpp"
#include "plans/sync/partial_reduce.hpp"
#include "plans/sync/sdpipe.hpp"

namespace skein::bench {
namespace {

constexpr double kStepUs = 60'000;  // Compute of a step, as in `simulation_options`.
constexpr double kDecay = 0.5;      // Factor on a member's weight for each step of staleness.
constexpr size_t kFinalEvaluations = 10;
constexpr uint64_t kPilotSeeds[] = {201, 202};

struct Cell {
  bool is_skewed = false;
  uint32_t scenario = 0;
  size_t policy = 0;
};

std::vector<Cell> cells_of(const ComparisonOptions& options) {
  std::vector<Cell> cells;
  for (const bool is_skewed : options.skews) {
    for (const uint32_t scenario : options.scenarios) {
      for (size_t policy = 0; policy < options.policies.size(); ++policy) {
        cells.push_back({is_skewed, scenario, policy});
      }
    }
  }
  return cells;
}

Trial trial_of(const ComparisonOptions& options, const Cell& cell, double lr, uint64_t seed) {
  Trial trial{.policy = options.policies[cell.policy],
              .scenario = scenario_of(options.layout, cell.scenario, seed),
              .duration_us = options.duration_us,
              .communication = options.communication};
  trial.training = {.layout = options.layout,
                    .optimizer = {options.optimizer, lr},
                    .batch = options.batch,
                    .is_skewed = cell.is_skewed,
                    .seed = seed,
                    .evaluate_every_us = options.evaluate_every_us};
  return trial;
}

ComparisonRow row_of(const ComparisonOptions& options, const Cell& cell, const TunedRate& chosen,
                     std::span<const TrialResult> results) {
  ComparisonRow row{.policy = options.policies[cell.policy].name,
                    .scenario = scenario_of(options.layout, cell.scenario, 1).name,
                    .is_skewed = cell.is_skewed,
                    .lr = options.lr_grid[chosen.number]};
  row.lr_is_at_edge = chosen.number == 0 || chosen.number + 1 == options.lr_grid.size();
  const auto count = static_cast<double>(results.size());
  for (const TrialResult& result : results) {
    const auto target_us = result.time_to_loss_us(options.target_loss);
    row.target_us.push_back(target_us.value_or(options.duration_us));
    if (target_us) {
      ++row.reached;
      row.target_samples.push_back(*result.samples_to_loss(options.target_loss));
    }
    row.steps_per_second += result.steps_per_second / count;
    row.staleness += result.staleness_mean / count;
    row.accuracy += result.final_accuracy(kFinalEvaluations) / count;
    const auto [least, most] =
        std::minmax_element(result.steps_by_pipeline.begin(), result.steps_by_pipeline.end());
    row.steps_min += static_cast<double>(*least) / count;
    row.steps_max += static_cast<double>(*most) / count;
  }
  return row;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

NamedPolicy sdpipe_weighted(uint64_t period) {
  return {"ours P=" + std::to_string(period) + " w", [period](const auto& layout, uint64_t) {
            return std::make_unique<plans::SdpipePolicy>(
                layout, plans::SdpipeOptions{.period = period, .decay = kDecay});
          }};
}

/// As `plans::ModeChoice` has them.
plans::SyncWatchOptions watch_options(OptimizerChoice::Kind optimizer) {
  plans::SyncWatchOptions options;
  options.local_steps = {1};
  options.steps_left_out = 1;
  options.chooser.is_adaptive = optimizer == OptimizerChoice::Kind::kAdamw;
  return options;
}

NamedPolicy adaptive(const std::string& name, const plans::SyncWatchOptions& options) {
  return {name, [options](const plans::PipelineLayout& layout, uint64_t seed) {
            return std::make_unique<AutoPolicy>(layout, options, seed);
          }};
}

/// Without the backward beside it.
NamedPolicy at_the_end(NamedPolicy allreduce) {
  allreduce.name += " late";
  allreduce.hides_reductions = false;
  return allreduce;
}

NamedPolicy overlapped_with_moments() {
  return {"overlapped m", [](const plans::PipelineLayout& layout, uint64_t) {
            return std::make_unique<plans::OverlappedAveragePolicy>(
                layout, plans::overlapped_options({.local_steps = 1}, true));
          }};
}

}  // namespace

plans::PipelineScenario scenario_of(const plans::PipelineLayout& layout, uint32_t number,
                                    uint64_t seed) {
  if (number == 1) return plans::sleeping_pieces(2 * kStepUs, kStepUs, seed);
  if (number == 2) return plans::slow_pipelines(layout, 1, 4);
  if (number == 3) return plans::round_robin_straggler(2 * kStepUs, kStepUs);
  return plans::homogeneous();
}

std::vector<NamedPolicy> compared_policies(OptimizerChoice::Kind optimizer) {
  std::vector<NamedPolicy> policies = {allreduce(), adaptive("auto", watch_options(optimizer))};
  policies.push_back(at_the_end(allreduce()));
  for (NamedPolicy& policy : artefact_policies()) policies.push_back(std::move(policy));
  for (const uint64_t period : {2, 5, 10}) policies.push_back(sdpipe_weighted(period));
  for (NamedPolicy& policy : other_policies()) policies.push_back(std::move(policy));
  policies.push_back({"P-Reduce 3 w", [](const auto& layout, uint64_t) {
                        return std::make_unique<plans::PartialReducePolicy>(
                            layout, plans::PartialReduceOptions{.decay = kDecay});
                      }});
  return policies;
}

std::vector<NamedPolicy> unselectable_policies(OptimizerChoice::Kind optimizer) {
  plans::SyncWatchOptions told = watch_options(optimizer);
  told.moments_per_weight = moments_per_weight(optimizer);
  told.chooser.parts_are_unlike = true;
  return {allreduce(), adaptive("auto, told", told), overlapped_with_moments()};
}

double ComparisonRow::target_median_us() const { return median(target_us); }

double ComparisonRow::target_samples_median() const { return median(target_samples); }

std::vector<TunedRate> tune(const TaskMaker& make_task, const ComparisonOptions& options) {
  const std::vector<Cell> cells = cells_of(options);
  std::vector<Trial> trials;
  for (const Cell& cell : cells) {
    for (const double lr : options.lr_grid) {
      for (const uint64_t seed : options.tuning_seeds) {
        trials.push_back(trial_of(options, cell, lr, seed));
        trials.back().training.stop_at_loss = options.target_loss;
      }
    }
  }
  const std::vector<TrialResult> results = run_trials(make_task, trials, options.threads);
  std::vector<TunedRate> chosen(cells.size());
  size_t r = 0;
  for (TunedRate& best : chosen) {
    double least_us = std::numeric_limits<double>::infinity();
    for (size_t lr = 0; lr < options.lr_grid.size(); ++lr) {
      double sum_us = 0;
      uint64_t misses = 0;
      for (size_t s = 0; s < options.tuning_seeds.size(); ++s) {
        const auto target_us = results[r++].time_to_loss_us(options.target_loss);
        sum_us += target_us.value_or(2 * options.duration_us);
        if (!target_us) ++misses;
      }
      if (sum_us >= least_us) continue;
      least_us = sum_us;
      best = {lr, misses};
    }
  }
  return chosen;
}

std::vector<ComparisonRow> compare(const TaskMaker& make_task, const ComparisonOptions& options) {
  const std::vector<Cell> cells = cells_of(options);
  const std::vector<TunedRate> chosen = tune(make_task, options);
  std::vector<Trial> trials;
  for (size_t c = 0; c < cells.size(); ++c) {
    for (const uint64_t seed : options.seeds) {
      trials.push_back(trial_of(options, cells[c], options.lr_grid[chosen[c].number], seed));
      if (options.stops_at_target) trials.back().training.stop_at_loss = options.target_loss;
    }
  }
  const std::vector<TrialResult> results = run_trials(make_task, trials, options.threads);
  std::vector<ComparisonRow> rows;
  for (size_t c = 0; c < cells.size(); ++c) {
    const auto own = std::span(results).subspan(c * options.seeds.size(), options.seeds.size());
    rows.push_back(row_of(options, cells[c], chosen[c], own));
    const ComparisonRow& reference = rows[c - cells[c].policy];
    rows[c].speed = reference.target_median_us() / rows[c].target_median_us();
  }
  return rows;
}

void print_rows(const std::vector<ComparisonRow>& rows, const ComparisonOptions& options) {
  std::string title;
  for (const ComparisonRow& row : rows) {
    const std::string own = row.scenario + (row.is_skewed ? ", skewed parts" : ", shuffled");
    if (own != title) {
      std::printf("\n%s\n%-14s %8s %16s %6s %4s %8s %7s %10s %9s %7s\n", own.c_str(), "policy",
                  "time s", "least..most", "speed", "hit", "steps/s", "stale", "fewest", "most",
                  "final");
      title = own;
    }
    const auto [least, most] = std::minmax_element(row.target_us.begin(), row.target_us.end());
    std::printf(
        "%-14s %8.2f %8.2f..%6.2f %6.2f %2llu/%zu %8.1f %7.2f %10.0f %9.0f %6.1f%%  lr %g%s\n",
        row.policy.c_str(), row.target_median_us() / 1e6, *least / 1e6, *most / 1e6, row.speed,
        static_cast<unsigned long long>(row.reached), options.seeds.size(), row.steps_per_second,
        row.staleness, row.steps_min, row.steps_max, 100 * row.accuracy, row.lr,
        row.lr_is_at_edge ? " (edge)" : "");
  }
}

void write_csv(const std::vector<ComparisonRow>& rows, std::FILE* file) {
  std::fprintf(file,
               "parts,scenario,policy,lr,reached,median_us,speed,steps_per_second,staleness,"
               "steps_min,steps_max,accuracy,target_us_by_seed\n");
  for (const ComparisonRow& row : rows) {
    std::fprintf(file, "%s,%s,%s,%g,%llu,%.0f,%.4f,%.2f,%.3f,%.1f,%.1f,%.4f,",
                 row.is_skewed ? "skewed" : "shuffled", row.scenario.c_str(), row.policy.c_str(),
                 row.lr, static_cast<unsigned long long>(row.reached), row.target_median_us(),
                 row.speed, row.steps_per_second, row.staleness, row.steps_min, row.steps_max,
                 row.accuracy);
    for (const double each_us : row.target_us) std::fprintf(file, "%.0f ", each_us);
    std::fprintf(file, "\n");
  }
}

void print_ceilings(const TaskMaker& make_task, ComparisonOptions options) {
  const std::vector<Cell> cells = cells_of(options);
  std::vector<Trial> trials;
  for (const Cell& cell : cells) {
    for (const double lr : options.lr_grid) {
      for (const uint64_t seed : kPilotSeeds) trials.push_back(trial_of(options, cell, lr, seed));
    }
  }
  const std::vector<TrialResult> results = run_trials(make_task, trials, options.threads);
  size_t r = 0;
  for (const Cell& cell : cells) {
    std::printf("%-8s %-16s %-12s", cell.is_skewed ? "skewed" : "shuffled",
                trials[r].scenario.name.c_str(), options.policies[cell.policy].name.c_str());
    for (const double lr : options.lr_grid) {
      double worst = 0, last = 0;  // The lowest loss of the seed whose lowest loss is highest.
      for (size_t s = 0; s < std::size(kPilotSeeds); ++s) {
        double lowest = std::numeric_limits<double>::infinity();
        for (const TrainingPoint& point : results[r].points) {
          lowest = std::min(lowest, point.score.loss);
        }
        worst = std::max(worst, lowest);
        last += results[r++].final_accuracy(kFinalEvaluations) / std::size(kPilotSeeds);
      }
      std::printf("  %g: %.3f %.1f%%", lr, worst, 100 * last);
    }
    std::printf("\n");
  }
}

}  // namespace skein::bench
