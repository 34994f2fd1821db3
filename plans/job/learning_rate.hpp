#pragma once

#include <cstdint>

#include "plans/job/job_spec.hpp"

namespace skein::plans {

/// Learning rate of `step`, counted from 0: linear warm-up over `warmup_steps` ((step + 1) /
/// warmup_steps of the peak), then the peak until the last `decay_ratio` of the job's steps, over
/// which it decays to `min_lr_factor` of the peak. A ratio below 1 makes WSD (Hu et al., MiniCPM,
/// arXiv 2404.06395, section 4).
double learning_rate(const JobSpec& job, int64_t step);

/// Factor on the gradients that limits their global norm: max_norm / norm, at most 1; 1 if
/// `max_norm` is 0. `norm` must be finite: see the coordinator's check.
double clip_factor(double norm, double max_norm);

/// The part of `training.max_norm` to which a stage of these layers clips by its own norm: 1, or
/// with `sync.clip_by` "share" the root of its share of the parameters. Then the norm of all stages
/// together stays below `max_norm`.
double clip_share(const JobSpec& job, const LayerRange& layers);

}  // namespace skein::plans
