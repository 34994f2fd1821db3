#include "gpu/host/cached_attention.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/host/loops.hpp"

namespace skein::gpu {
namespace {

/// One row of causal attention: the query q [H, D] attends to the first `count` positions.
void attend_one(const Ops::Attention& shape, const Ops::KeyValueCache& cache, int64_t count,
                const float* q, float* scores, float* out) {
  const int64_t size = shape.head_size;
  const int64_t sharing = shape.heads / shape.kv_heads;
  const float factor = 1.0F / std::sqrt(static_cast<float>(size));
  for (int64_t head = 0; head < shape.heads; ++head) {
    const int64_t offset = head / sharing * cache.capacity * size;
    const float* keys = cache.keys.floats() + offset;
    const float* values = cache.values.floats() + offset;
    const float* query = q + head * size;
    for (int64_t i = 0; i < count; ++i) {
      scores[i] = factor * loops::dot(query, keys + i * size, size);
    }
    loops::softmax_row(scores, count, count);
    float* sum = out + head * size;
    std::fill(sum, sum + size, 0.0F);
    for (int64_t i = 0; i < count; ++i) {
      const float* value = values + i * size;
      for (int64_t d = 0; d < size; ++d) sum[d] += scores[i] * value[d];
    }
  }
}

}  // namespace

void append_to_cache(const Ops::Attention& shape, const float* qkv,
                     const Ops::KeyValueCache& cache) {
  const int64_t size = shape.head_size;
  for (int64_t t = 0; t < shape.seq_len; ++t) {
    const float* key = qkv + t * shape.qkv_width() + shape.query_width();
    const float* value = key + shape.key_width();
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t to = (head * cache.capacity + cache.length + t) * size;
      std::copy_n(key + head * size, size, cache.keys.floats() + to);
      std::copy_n(value + head * size, size, cache.values.floats() + to);
    }
  }
}

void attend_to_cache(const Ops::Attention& shape, const float* qkv, const Ops::KeyValueCache& cache,
                     std::span<float> scores, float* out) {
  for (int64_t t = 0; t < shape.seq_len; ++t) {
    attend_one(shape, cache, cache.length + t + 1, qkv + t * shape.qkv_width(), scores.data(),
               out + t * shape.query_width());
  }
}

}  // namespace skein::gpu
