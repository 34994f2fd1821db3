#include "plans/job/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace skein::plans {

double learning_rate(const JobSpec& job, int64_t step) {
  const LrSchedulerSpec& scheduler = job.lr_scheduler;
  const double peak = job.optimizer.lr;
  if (step < scheduler.warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(scheduler.warmup_steps);
  }
  if (scheduler.decay_type == "none") return peak;
  const int64_t span = std::max<int64_t>(1, job.training.steps - scheduler.warmup_steps);
  const double progress =
      std::min(1.0, static_cast<double>(step - scheduler.warmup_steps) / static_cast<double>(span));
  const double left = scheduler.decay_type == "cosine"
                          ? 0.5 * (1 + std::cos(std::numbers::pi * progress))
                          : 1 - progress;
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
