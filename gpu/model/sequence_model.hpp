#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace skein::gpu {

/// A whole model that draws text: it has seen a sequence, and computes what is added to it. Used by
/// one thread.
class SequenceModel {
 public:
  virtual ~SequenceModel() = default;

  virtual int64_t length() const = 0;  // Positions of the sequence so far.
  virtual void clear() = 0;            // Begins another sequence.
  /// Adds `tokens` [n], n >= 1, each in [0, V), to the sequence and waits for the end. Overwrites
  /// logits [V] by those behind the last one. After an error, which says where it happened if there
  /// are several places, another sequence begins.
  virtual absl::Status extend(std::span<const int32_t> tokens, std::span<float> logits) = 0;
};

}  // namespace skein::gpu
