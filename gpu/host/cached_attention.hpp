#pragma once

#include <span>

#include "gpu/ops.hpp"

namespace skein::gpu {

/// As those of `Ops`, on the calling thread. `scores` has room for all positions so far.
void append_to_cache(const Ops::Attention& shape, const float* qkv,
                     const Ops::KeyValueCache& cache);
void attend_to_cache(const Ops::Attention& shape, const float* qkv, const Ops::KeyValueCache& cache,
                     std::span<float> scores, float* out);

}  // namespace skein::gpu
