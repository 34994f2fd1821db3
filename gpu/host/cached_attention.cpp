#include "gpu/host/cached_attention.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/host/loops.hpp"

namespace skein::gpu {

void attend_to_cache(const CachedHeads& cache, int64_t count, const float* q, float* scores,
                     float* out) {
  const int64_t size = cache.head_size;
  const int64_t sharing = cache.heads / cache.key_heads;
  const float factor = 1.0F / std::sqrt(static_cast<float>(size));
  for (int64_t head = 0; head < cache.heads; ++head) {
    const int64_t offset = head / sharing * cache.capacity * size;
    const float* query = q + head * size;
    for (int64_t i = 0; i < count; ++i) {
      scores[i] = factor * loops::dot(query, cache.keys + offset + i * size, size);
    }
    loops::softmax_row(scores, count, count);
    float* sum = out + head * size;
    std::fill(sum, sum + size, 0.0F);
    for (int64_t i = 0; i < count; ++i) {
      const float* value = cache.values + offset + i * size;
      for (int64_t d = 0; d < size; ++d) sum[d] += scores[i] * value[d];
    }
  }
}

}  // namespace skein::gpu
