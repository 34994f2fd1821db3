#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// A whole model that draws text: it keeps the keys and values of the positions that it has seen,
/// and computes only those that are added. Weights and nothing of training. On host devices.
///
/// Not thread-safe. `extend` runs inside `Work::run` of the device, which outlives the decoder.
class Decoder {
 public:
  /// Copies a parameter as float32; `name` as in `plans::ParameterSpec`.
  using ReadWeight = std::function<absl::Status(const std::string& name, std::span<float> out)>;

  /// `positions`: the longest sequence, at most the model's.
  /// InvalidArgument     the device's memory is not the host's, or there are too many positions.
  /// ResourceExhausted   there is no memory. Else what `read` returns.
  static absl::StatusOr<std::unique_ptr<Decoder>> create(const plans::ModelSpec& model,
                                                         int64_t positions, const ReadWeight& read,
                                                         Device& device);
  /// What a decoder allocates on a host device, if at most `added` tokens are added at once.
  static int64_t memory_bytes(const plans::ModelSpec& model, int64_t positions, int64_t added);
  virtual ~Decoder() = default;

  virtual int64_t length() const = 0;  // Positions of the sequence so far.
  virtual void clear() = 0;            // Begins another sequence.
  /// Adds `tokens` [n], n >= 1, each in [0, V), to the sequence. Overwrites logits [V] by those
  /// behind the last one. InvalidArgument if they do not fit; ResourceExhausted if there is no
  /// memory for more tokens at once than before.
  virtual absl::Status extend(Ops& ops, std::span<const int32_t> tokens,
                              std::span<float> logits) = 0;
};

/// The first token of the context, of `count` tokens, that a model with room for `window` sees: all
/// while they fit. Then it moves on by half a window at a time, as positions count from the
/// beginning of the context and all of it is computed anew whenever that moves.
int64_t context_begin(int64_t count, int64_t window);

}  // namespace skein::gpu
