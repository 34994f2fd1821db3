#include "plans/job/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace skein::plans {
namespace {

/// What is left of the way from the peak to the lowest rate, 1 to 0, behind `progress` of it.
double left_after(const LrSchedulerSpec& scheduler, double progress) {
  if (scheduler.decay_type == "cosine") return 0.5 * (1 + std::cos(std::numbers::pi * progress));
  if (scheduler.decay_type == "polynomial") return std::pow(1 - progress, scheduler.decay_power);
  if (scheduler.decay_type == "sqrt") return 1 - std::sqrt(progress);
  return 1 - progress;
}

}  // namespace

double learning_rate(const JobSpec& job, int64_t step) {
  const LrSchedulerSpec& scheduler = job.lr_scheduler;
  const double peak = job.optimizer.lr;
  if (step < scheduler.warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(scheduler.warmup_steps);
  }
  if (scheduler.decay_type == "none") return peak;
  const int64_t steps = job.training.steps;
  const int64_t decaying = std::llround(scheduler.decay_ratio * static_cast<double>(steps));
  const int64_t begin = std::max(scheduler.warmup_steps, steps - decaying);
  if (step < begin) return peak;
  const int64_t span = std::max<int64_t>(1, steps - begin);
  const double progress =
      std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(span));
  const double left = left_after(scheduler, progress);
  return peak * (scheduler.min_lr_factor + (1 - scheduler.min_lr_factor) * left);
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0 || norm <= max_norm) return 1;
  return max_norm / norm;
}

double clip_share(const JobSpec& job, const LayerRange& layers) {
  if (job.sync.clip_by != "share") return 1;
  const auto count = [&](const LayerRange& range) {
    int64_t all = 0;
    for (const ParameterSpec& each : range_parameters(job.model, range)) all += element_count(each);
    return static_cast<double>(all);
  };
  return std::sqrt(count(layers) / count({0, layer_count(job.model)}));
}

}  // namespace skein::plans
