#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "gpu/model/decoder.hpp"
#include "gpu/model/sequence_model.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// A whole model that draws text, its layers cut over devices of this process, which compute one
/// after the other. Activations of the positions that are added go by way of the host. What comes
/// out does not depend on the cuts if the devices are alike. Used by one thread.
class DecoderPipeline final : public SequenceModel {
 public:
  /// Layers of a device, which outlives the pipeline. One may have several parts.
  struct Part {
    Device* device = nullptr;
    plans::LayerRange layers;
  };
  /// `positions` as in `Decoder::Options`. The parts tile the model's layers in order.
  /// InvalidArgument if they do not; else errors of `Decoder::create`, which name the device.
  static absl::StatusOr<std::unique_ptr<DecoderPipeline>> create(const plans::ModelSpec& model,
                                                                 int64_t positions,
                                                                 std::span<const Part> parts,
                                                                 const ReadWeight& read);

  int64_t length() const override;
  void clear() override;
  /// Errors of `Decoder::extend`.
  absl::Status extend(std::span<const int32_t> tokens, std::span<float> logits) override;

 private:
  struct Stage {
    Device* device = nullptr;
    std::unique_ptr<Decoder> decoder;
  };

  absl::Status extend_stages(std::span<const int32_t> tokens, std::span<float> logits);

  int64_t channels_ = 0;
  std::vector<Stage> stages_;                          // Not empty.
  std::vector<float> activations_, next_activations_;  // [n, C] each, between two devices.
};

}  // namespace skein::gpu
