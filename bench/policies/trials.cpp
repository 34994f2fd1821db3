#include "bench/policies/trials.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

namespace skein::bench {

std::optional<double> TrialResult::time_to_loss_us(double loss) const {
  for (size_t i = 0; i < points.size(); ++i) {
    if (!(points[i].score.loss <= loss)) continue;
    if (i == 0) return points[i].at_us;
    const TrainingPoint& before = points[i - 1];
    const double share = (before.score.loss - loss) / (before.score.loss - points[i].score.loss);
    return before.at_us + share * (points[i].at_us - before.at_us);
  }
  return std::nullopt;
}

std::optional<double> TrialResult::samples_to_loss(double loss) const {
  const std::optional<double> at_us = time_to_loss_us(loss);
  if (!at_us) return std::nullopt;
  for (size_t i = 1; i < points.size(); ++i) {
    if (points[i].at_us < *at_us) continue;
    const TrainingPoint& before = points[i - 1];
    const double share = (*at_us - before.at_us) / (points[i].at_us - before.at_us);
    const auto done = static_cast<double>(points[i].samples - before.samples);
    return static_cast<double>(before.samples) + share * done;
  }
  return 0;
}

std::optional<double> TrialResult::time_to_samples_us(uint64_t samples) const {
  for (size_t i = 1; i < points.size(); ++i) {
    if (points[i].samples < samples) continue;
    const TrainingPoint& before = points[i - 1];
    const double share = static_cast<double>(samples - before.samples) /
                         static_cast<double>(points[i].samples - before.samples);
    return before.at_us + share * (points[i].at_us - before.at_us);
  }
  return std::nullopt;
}

double TrialResult::final_accuracy(size_t count) const {
  const size_t used = std::min(count, points.size());
  double sum = 0;
  for (size_t i = points.size() - used; i < points.size(); ++i) sum += points[i].score.accuracy;
  return used > 0 ? sum / static_cast<double>(used) : 0;
}

double hidden_us(const plans::PolicySimulationOptions& options) {
  constexpr double kBuckets = 8;
  const auto pipelines = static_cast<double>(options.layout.pipelines);
  const double exchange_us =
      2 * (pipelines - 1) / pipelines * options.exchange_us + pipelines * options.latency_us;
  return (kBuckets - 1) / kBuckets * std::min(exchange_us, options.backward_us[0]);
}

double global_us(const plans::PolicySimulationOptions& options) {
  const auto pipelines = static_cast<double>(options.layout.pipelines);
  return 2 * (pipelines - 1) / pipelines * (1 + options.moments_per_weight) * options.exchange_us +
         pipelines * options.latency_us;
}

plans::PolicySimulationOptions simulation_of(const Trial& trial) {
  const plans::PipelineLayout& layout = trial.training.layout;
  plans::PolicySimulationOptions options = simulation_options(layout, trial.scenario);
  options.exchange_us *= trial.communication;
  options.latency_us *= trial.communication;
  options.server_us *= trial.communication;
  options.server_latency_us *= trial.communication;
  options.hidden_us = trial.policy.hides_reductions ? hidden_us(options) : 0;
  options.moments_per_weight = moments_per_weight(trial.training.optimizer.kind);
  options.round_samples = trial.round_steps * layout.pipelines;
  options.global_us = global_us(options);
  options.warm_up_us = 0;
  options.duration_us = trial.duration_us;
  return options;
}

TrialResult run_trial(Task& task, const Trial& trial) {
  const plans::PolicySimulationOptions options = simulation_of(trial);
  ReplicaTraining training(task, trial.training);
  const auto policy = trial.policy.make(trial.training.layout, trial.training.seed);
  const plans::PolicySimulation simulated = plans::simulate_policy(*policy, options, &training);
  return {.points = training.points(),
          .steps_per_second = simulated.steps_per_second,
          .staleness_mean = training.staleness_mean(),
          .mean_error = training.mean_error(),
          .steps_by_pipeline = simulated.steps_by_pipeline};
}

std::vector<TrialResult> run_trials(const TaskMaker& make_task, std::span<const Trial> trials,
                                    uint32_t threads) {
  std::vector<TrialResult> results(trials.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    const std::unique_ptr<Task> task = make_task();
    for (size_t i = next++; i < trials.size(); i = next++) results[i] = run_trial(*task, trials[i]);
  };
  std::vector<std::thread> others;
  for (uint32_t t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return results;
}

}  // namespace skein::bench
