#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "gpu/model/decoder_pipeline.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::cli {

/// What a model that draws text is to have memory for.
struct DecodingNeed {
  plans::ModelSpec model;
  int64_t positions = 0;  // The longest context.
  int64_t added = 0;      // The most of them that are computed at once.
};

/// Layers for each device, in their order, as even in bytes as the devices' memory allows; a device
/// that has no room is left out. Host devices share what the machine has available. Nothing is
/// allocated. ResourceExhausted, in one line, if the model does not fit: what is missing where.
absl::StatusOr<std::vector<gpu::DecoderPipeline::Part>> cut_model(
    const DecodingNeed& need, const std::vector<std::unique_ptr<gpu::Device>>& devices);

/// "layers 0-3 on cpu x1, 4-7 on cuda:0 ..."
std::string parts_text(const std::vector<gpu::DecoderPipeline::Part>& parts);

}  // namespace skein::cli
