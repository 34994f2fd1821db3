#pragma once

#include <cstdint>
#include <vector>

#include "plans/job/job_spec.hpp"
#include "plans/job/model_spec.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// What a device keeps of one number; statistics, gradients of weights and moments are float32.
struct NumberBytes {
  int64_t activation = 4;   // And of its gradient.
  int64_t weight_copy = 0;  // A weight as products read it, if that is not the weight itself.
  bool operator==(const NumberBytes&) const = default;
};
inline constexpr NumberBytes kBfloat16Bytes = {2, 2};

/// What a device keeps with these settings: "bfloat16" on GPUs, else float32.
NumberBytes number_bytes(const DeviceSpec& device);

/// A profile without a measurement, for a transformer as the back ends run it. A layer takes the
/// longer of its arithmetic (`layer_flops`) and its memory traffic (weights, stash, gradients, each
/// as often as it is read or written); the sizes are those that a back end allocates, byte for
/// byte. The head does all its work in F, which leaves nothing but a copy to B.
///
/// `rows`                     samples of a micro-batch, ascending, each >= 1; at least one.
/// `device_flops_per_second`  that a device of speed 1.0 reaches, > 0.
/// `bytes_per_second`         of its memory, > 0.
Profile estimate_profile(const ModelSpec& model, int64_t seq_len, const std::vector<int64_t>& rows,
                         const OptimizerSpec& optimizer, double device_flops_per_second,
                         double bytes_per_second, const NumberBytes& bytes = {});

/// Puts the times of a device that only sleeps in place of those of `profile`, which is of `model`:
/// blocks take what `device` says for a whole micro-batch of `micro_batch_rows`, and fewer rows
/// their part of it; the other layers take none. The time of all updates is right, a stage's goes
/// by its bytes. The sizes stay.
void set_sleep_times(Profile& profile, const ModelSpec& model, const DeviceSpec& device,
                     int64_t micro_batch_rows);

}  // namespace skein::plans
