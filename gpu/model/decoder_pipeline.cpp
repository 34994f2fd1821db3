#include "gpu/model/decoder_pipeline.hpp"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

absl::Status check_parts(const plans::ModelSpec& model,
                         std::span<const DecoderPipeline::Part> parts) {
  int64_t next = 0;
  for (const auto& part : parts) {
    if (part.layers.begin != next) break;
    next = part.layers.end;
  }
  if (next == plans::layer_count(model)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the parts of a model with ", plans::layer_count(model), " layers do not have layer ", next));
}

/// Says which device it is about, where there are several.
absl::Status of_device(const absl::Status& status, const Device& device, size_t devices) {
  if (status.ok() || devices == 1) return status;
  return absl::Status(status.code(),
                      absl::StrCat(device.info().name, ": ", std::string(status.message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderPipeline>> DecoderPipeline::create(
    const plans::ModelSpec& model, int64_t positions, std::span<const Part> parts,
    const ReadWeight& read) {
  SKEIN_RETURN_IF_ERROR(check_parts(model, parts));
  auto pipeline = std::make_unique<DecoderPipeline>();
  pipeline->channels_ = model.channels;
  for (const Part& part : parts) {
    auto decoder = Decoder::create({model, part.layers, positions}, read, *part.device);
    SKEIN_RETURN_IF_ERROR(of_device(decoder.status(), *part.device, parts.size()));
    pipeline->stages_.push_back({part.device, *std::move(decoder)});
  }
  return pipeline;
}

int64_t DecoderPipeline::length() const { return stages_.front().decoder->length(); }

void DecoderPipeline::clear() {
  for (Stage& stage : stages_) stage.decoder->clear();
}

absl::Status DecoderPipeline::extend(std::span<const int32_t> tokens, std::span<float> logits) {
  absl::Status status = extend_stages(tokens, logits);
  if (!status.ok()) clear();  // Devices behind one that failed have not seen the tokens.
  return status;
}

absl::Status DecoderPipeline::extend_stages(std::span<const int32_t> tokens,
                                            std::span<float> logits) {
  Decoder::Input input;
  input.tokens = tokens;
  for (const Stage& stage : stages_) {
    const bool is_last = &stage == &stages_.back();
    if (!is_last) next_activations_.resize(tokens.size() * static_cast<size_t>(channels_));
    const std::span<float> output = is_last ? logits : std::span(next_activations_);
    Work work;
    work.run = [&](Ops& ops) { return stage.decoder->extend(ops, input, output); };
    const absl::Status status = stage.device->run(std::move(work));
    SKEIN_RETURN_IF_ERROR(of_device(status, *stage.device, stages_.size()));
    activations_.swap(next_activations_);
    input = {{}, activations_};
  }
  return absl::OkStatus();
}

}  // namespace skein::gpu
