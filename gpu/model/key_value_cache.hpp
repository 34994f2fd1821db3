#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// The keys and values of one layer for the positions of one sequence that it has seen, so that the
/// next position computes nothing of them again. Memory of a host device, float32. Used by one
/// thread.
class KeyValueCache {
 public:
  /// With room for `capacity` positions, of which `shape` says heads and their size.
  /// ResourceExhausted if there is no memory.
  static absl::StatusOr<KeyValueCache> create(const Ops::Attention& shape, int64_t capacity,
                                              Device& device);
  /// What `create` allocates.
  static int64_t bytes(const Ops::Attention& shape, int64_t capacity);

  int64_t length() const { return length_; }  // Positions that are in it.
  void clear() { length_ = 0; }

  /// Keeps the keys and values of the next `shape.seq_len` positions of one sequence. `qkv` as in
  /// `Ops::attention_forward`, with keys turned by their positions. There is room for them.
  void append(const Ops::Attention& shape, const float* qkv);
  /// Overwrites out [T, H D]: attention of the T positions that were appended last to themselves
  /// and all before them.
  void attend(const Ops::Attention& shape, const float* qkv, float* out);

 private:
  int64_t capacity_ = 0;
  int64_t length_ = 0;
  Buffer memory_;
  // In `memory_`:
  float *keys_ = nullptr, *values_ = nullptr;  // [key heads, capacity, D]
  float* scores_ = nullptr;                    // [capacity]
};

}  // namespace skein::gpu
