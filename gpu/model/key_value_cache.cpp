#include "gpu/model/key_value_cache.hpp"

#include <algorithm>

#include "gpu/host/cached_attention.hpp"
#include "gpu/numbers.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// Where the parts of a row of qkv lie.
struct Row {
  explicit Row(const Ops::Attention& shape)
      : heads(shape.heads),
        key_heads(shape.kv_heads),
        head_size(shape.head_size),
        keys(shape.query_width()),
        values(keys + shape.key_width()),
        width(shape.qkv_width()) {}
  int64_t heads, key_heads, head_size;
  int64_t keys;    // Offset of the keys; queries begin at 0.
  int64_t values;  // Offset of the values.
  int64_t width;
};

}  // namespace

int64_t KeyValueCache::bytes(const Ops::Attention& shape, int64_t capacity) {
  return float_bytes((2 * shape.key_width() + 1) * capacity);
}

absl::StatusOr<KeyValueCache> KeyValueCache::create(const Ops::Attention& shape, int64_t capacity,
                                                    Device& device) {
  KeyValueCache cache;
  cache.capacity_ = capacity;
  SKEIN_ASSIGN_OR_RETURN(cache.memory_, device.allocate(bytes(shape, capacity)));
  cache.keys_ = cache.memory_.floats();
  cache.values_ = cache.keys_ + shape.key_width() * capacity;
  cache.scores_ = cache.values_ + shape.key_width() * capacity;
  return cache;
}

void KeyValueCache::append(const Ops::Attention& shape, const float* qkv) {
  SKEIN_CHECK(shape.batch == 1 && length_ + shape.seq_len <= capacity_) << length_;
  const Row row(shape);
  for (int64_t t = 0; t < shape.seq_len; ++t, qkv += row.width) {
    for (int64_t head = 0; head < row.key_heads; ++head) {
      const int64_t to = (head * capacity_ + length_ + t) * row.head_size;
      const float* key = qkv + row.keys + head * row.head_size;
      const float* value = qkv + row.values + head * row.head_size;
      std::copy(key, key + row.head_size, keys_ + to);
      std::copy(value, value + row.head_size, values_ + to);
    }
  }
  length_ += shape.seq_len;
}

void KeyValueCache::attend(const Ops::Attention& shape, const float* qkv, float* out) {
  const Row row(shape);
  const CachedHeads heads = {keys_, values_, row.heads, row.key_heads, row.head_size, capacity_};
  for (int64_t t = 0; t < shape.seq_len; ++t) {
    attend_to_cache(heads, length_ - shape.seq_len + t + 1, qkv + t * row.width, scores_,
                    out + t * row.heads * row.head_size);
  }
}

}  // namespace skein::gpu
