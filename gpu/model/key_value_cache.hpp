#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ops.hpp"

namespace skein::gpu {

/// The keys and values of one layer for the positions of one sequence that it has seen, so that the
/// next position computes nothing of them again. Host memory, float32. Used by one thread.
class KeyValueCache {
 public:
  explicit KeyValueCache(int64_t capacity) : capacity_(capacity) {}

  int64_t length() const { return length_; }  // Positions that are in it.
  void clear() { length_ = 0; }

  /// Keeps the keys and values of the next `shape.seq_len` positions of one sequence. `qkv` as in
  /// `Ops::attention_forward`, with keys turned by their positions. There is room for them.
  void append(const Ops::Attention& shape, const float* qkv);
  /// Overwrites out [T, H D]: attention of the T positions that were appended last to themselves
  /// and all before them.
  void attend(const Ops::Attention& shape, const float* qkv, float* out);

 private:
  int64_t capacity_;
  int64_t length_ = 0;
  std::vector<float> keys_, values_;  // [key heads, capacity, D], made with the first position.
  std::vector<float> scores_;         // [capacity]
};

}  // namespace skein::gpu
