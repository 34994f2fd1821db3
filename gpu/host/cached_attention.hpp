#pragma once

#include <cstdint>

namespace skein::gpu {

/// Keys and values of one layer and one sequence on the host: each [key heads, capacity, D].
struct CachedHeads {
  const float* keys = nullptr;
  const float* values = nullptr;
  int64_t heads = 0;      // H
  int64_t key_heads = 0;  // Divides `heads`: so many heads in a row share keys and values.
  int64_t head_size = 0;  // D
  int64_t capacity = 0;   // Positions that there is room for.
};

/// One row of causal attention: the query q [H, D] attends to the first `count` positions of the
/// cache. Overwrites out [H, D]. `scores` has room for `count` floats. On the calling thread.
void attend_to_cache(const CachedHeads& cache, int64_t count, const float* q, float* scores,
                     float* out);

}  // namespace skein::gpu
