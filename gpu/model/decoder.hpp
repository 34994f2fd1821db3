#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "gpu/model/decoder_weights.hpp"
#include "plans/job/model_spec.hpp"
#include "plans/planner/memory_cut.hpp"

namespace skein::gpu {

/// Some layers of a model that draws text, on one device: it keeps the keys and values of the
/// positions that it has seen, and computes only those that are added. Weights and nothing of
/// training. Activations are in the device's memory as it prefers them (`DeviceInfo`).
///
/// Not thread-safe. `extend` runs inside `Work::run` of the device, which outlives the decoder.
class Decoder {
 public:
  struct Options {
    plans::ModelSpec model;
    plans::LayerRange layers;  // Not empty.
    int64_t positions = 0;     // The longest sequence, at most the model's.
  };
  /// InvalidArgument     the device computes nothing, or layers or positions are out of range.
  /// ResourceExhausted   there is no memory. Else what `read` returns.
  static absl::StatusOr<std::unique_ptr<Decoder>> create(const Options& options,
                                                         const ReadWeight& read, Device& device);
  struct Memory {
    int64_t weights_bytes = 0;
    int64_t cache_bytes = 0;    // Keys and values.
    int64_t working_bytes = 0;  // At most as many with fewer layers.
    int64_t passing_bytes = 0;  // Taken by the device's ops, to round what comes and goes.
    int64_t kept_bytes() const { return weights_bytes + cache_bytes; }
    int64_t fixed_bytes() const { return working_bytes + passing_bytes; }
    int64_t total_bytes() const { return kept_bytes() + fixed_bytes(); }
  };
  /// What a decoder takes of a device, if at most `added` tokens are added at once.
  static Memory memory(const Options& options, int64_t added, const DeviceInfo& device);
  /// What each layer of the model would take alone, all of them whichever `layers` are in
  /// `options`. `free_bytes` is left open.
  static plans::LayerRoom room(Options options, int64_t added, const DeviceInfo& device);
  virtual ~Decoder() = default;

  virtual int64_t length() const = 0;  // Positions of the sequence so far.
  virtual void clear() = 0;            // Begins another sequence.

  /// n >= 1 positions, in host memory that is read until the work ends. The other span is empty.
  struct Input {
    std::span<const int32_t> tokens;     // [n], each in [0, V): for layer 0.
    std::span<const float> activations;  // [n, C], those of the layer before, otherwise.
  };
  /// Adds the positions to the sequence. Overwrites `output`: logits [V] behind the last position
  /// if the layers end with the head, else activations [n, C]. Host memory, valid when the work
  /// ends. InvalidArgument if they do not fit; ResourceExhausted if there is no memory for more
  /// positions at once than before.
  virtual absl::Status extend(Ops& ops, const Input& input, std::span<float> output) = 0;
};

/// The first token of the context, of `count` tokens, that a model with room for `window` sees: all
/// while they fit. Then it moves on by half a window at a time, as positions count from the
/// beginning of the context and all of it is computed anew whenever that moves.
int64_t context_begin(int64_t count, int64_t window);

}  // namespace skein::gpu
