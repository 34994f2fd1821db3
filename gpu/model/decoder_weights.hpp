#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "gpu/model/head.hpp"
#include "gpu/model/layer.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// Copies a parameter as float32; `name` as in `plans::ParameterSpec`.
using ReadWeight = std::function<absl::Status(const std::string& name, std::span<float> out)>;

/// The weights of some layers, in the memory of a device, for computing without training: each
/// tensor once, as float32 or in the type of the device's products, whichever reads it. A tied
/// embedding that both read is there twice. Used by one thread.
class DecoderWeights {
 public:
  /// Numbers that are rounded on the device at once: what it needs for that stays small.
  static constexpr int64_t kPieceFloats = 1 << 20;

  /// ResourceExhausted if there is no memory; else what `read` or the device says.
  static absl::StatusOr<DecoderWeights> load(const plans::ModelSpec& model,
                                             const plans::LayerRange& layers,
                                             const ReadWeight& read, Device& device);
  /// What `load` allocates.
  static int64_t bytes(const plans::ModelSpec& model, const plans::LayerRange& layers,
                       NumberType activations);

  /// Without gradients. `layer` of the range.
  const LayerParameters& layer(int64_t layer) const {
    return layers_[static_cast<size_t>(layer - begin_)];
  }
  /// The range ends with it.
  Head::Parameters head() const;

 private:
  int64_t begin_ = 0;
  Buffer floats_, rounded_;  // The latter is empty where products read float32.
  std::vector<LayerParameters> layers_;
  bool has_norm_bias_ = false;
};

}  // namespace skein::gpu
