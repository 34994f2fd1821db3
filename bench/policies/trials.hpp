#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/policies/replica_training.hpp"
#include "bench/policy_simulation/policy_table.hpp"

namespace skein::bench {

inline constexpr uint64_t kRoundSteps = 50;

/// One training run.
struct Trial {
  NamedPolicy policy;
  plans::PipelineScenario scenario;
  TrainingOptions training;
  double duration_us = 0;
  double communication = 1;  // Multiplies what exchanges and servers take.
  /// As `sync.round_steps`, of a job that does not say: a step is a claim for each pipeline
  /// replica. 0: there are no rounds.
  uint64_t round_steps = kRoundSteps;
};

struct TrialResult {
  std::vector<TrainingPoint> points;
  double steps_per_second = 0;
  double staleness_mean = 0;
  double mean_error = 0;
  std::vector<uint64_t> steps_by_pipeline;

  /// When the loss came down to `loss` first, between evaluations by a straight line.
  std::optional<double> time_to_loss_us(double loss) const;
  /// How many samples had been used then.
  std::optional<double> samples_to_loss(double loss) const;
  /// When so many samples had been used.
  std::optional<double> time_to_samples_us(uint64_t samples) const;
  /// Mean of the last `count` evaluations.
  double final_accuracy(size_t count) const;
};

using TaskMaker = std::function<std::unique_ptr<Task>()>;

/// What of an all-reduce of a stage's gradients is over when the last backward is, in 8 buckets of
/// equal size that a backward completes one after the other: all but the last one, if they do not
/// take longer than it. `bench/overlap.py` measures that.
double hidden_us(const plans::PolicySimulationOptions& options);

/// What the global average of a round takes: a ring of weights and moments.
double global_us(const plans::PolicySimulationOptions& options);

/// When everybody computes, waits and averages in it.
plans::PolicySimulationOptions simulation_of(const Trial& trial);
TrialResult run_trial(Task& task, const Trial& trial);
/// Results in the order of the trials, whatever the threads do; each thread makes a task of its
/// own.
std::vector<TrialResult> run_trials(const TaskMaker& make_task, std::span<const Trial> trials,
                                    uint32_t threads);

}  // namespace skein::bench
