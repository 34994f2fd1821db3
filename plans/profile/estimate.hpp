#pragma once

#include <cstdint>
#include <vector>

#include "plans/job_spec.hpp"
#include "plans/model_spec.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// A profile without a measurement, for a transformer in float32 as the host back end runs it. A
/// layer takes the longer of its arithmetic (`layer_flops`) and its memory traffic (weights, stash,
/// gradients, each as often as it is read or written); the sizes are those that the back end
/// allocates, byte for byte. The head does all its work in F, which leaves nothing but a copy to B.
///
/// `rows`                     samples of a micro-batch, ascending, each >= 1; at least one.
/// `device_flops_per_second`  that a device of speed 1.0 reaches, > 0.
/// `bytes_per_second`         of its memory, > 0.
Profile estimate_profile(const ModelSpec& model, int64_t seq_len, const std::vector<int64_t>& rows,
                         const OptimizerSpec& optimizer, double device_flops_per_second,
                         double bytes_per_second);

}  // namespace skein::plans
