#include "gpu/model/decoder_weights.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/status_macros.hpp"
#include "plans/job/block_parameters.hpp"

namespace skein::gpu {
namespace {

/// A parameter, and who reads it.
struct Tensor {
  plans::ParameterSpec spec;
  bool is_float = false;    // Norms and the embedding's tables.
  bool is_operand = false;  // What products read, and their biases.
};

bool is_norm(plans::BlockPart part) {
  return part == plans::BlockPart::kNorm1Weight || part == plans::BlockPart::kNorm1Bias ||
         part == plans::BlockPart::kNorm2Weight || part == plans::BlockPart::kNorm2Bias;
}

size_t norm_tensors(const plans::ModelSpec& model) { return plans::has_rms_norm(model) ? 1 : 2; }

/// In the order of `plans::layer_parameters`.
std::vector<Tensor> tensors_of(const plans::ModelSpec& model, int64_t layer,
                               const plans::LayerRange& range) {
  std::vector<Tensor> tensors;
  if (plans::layer_kind(model, layer) == plans::LayerKind::kBlock) {
    for (auto& [part, spec] : plans::block_parameters(model, layer - 1)) {
      tensors.push_back({std::move(spec), is_norm(part), !is_norm(part)});
    }
    return tensors;
  }
  const bool is_head = plans::layer_kind(model, layer) == plans::LayerKind::kHead;
  for (auto& spec : plans::layer_parameters(model, layer, range)) {
    const bool is_matrix = is_head && tensors.size() >= norm_tensors(model);
    tensors.push_back({std::move(spec), !is_matrix, is_matrix});
  }
  const bool is_shared = model.tied_head && range.end == plans::layer_count(model);
  if (!is_head && is_shared) tensors.front().is_operand = true;
  return tensors;
}

/// Numbers of each type that the layers keep.
struct Counts {
  int64_t floats = 0, rounded = 0;
};
Counts count(const plans::ModelSpec& model, const plans::LayerRange& layers, bool rounds) {
  Counts counts;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    for (const Tensor& tensor : tensors_of(model, layer, layers)) {
      const int64_t numbers = plans::element_count(tensor.spec);
      if (tensor.is_float || !rounds) counts.floats += numbers;
      if (tensor.is_operand && rounds) counts.rounded += numbers;
    }
  }
  return counts;
}

absl::Status upload_rounded(std::span<const float> values, Numbers to, Device& device) {
  constexpr auto kPiece = static_cast<size_t>(DecoderWeights::kPieceFloats);
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    const auto piece = values.subspan(begin, std::min(kPiece, values.size() - begin));
    Work work;
    work.run = [&](Ops& ops) {
      ops.copy_in(piece, to + static_cast<int64_t>(begin));
      return absl::OkStatus();
    };
    SKEIN_RETURN_IF_ERROR(device.run(std::move(work)));
  }
  return absl::OkStatus();
}

/// Puts a tensor where it is kept, either of which may be null.
absl::Status load_tensor(const std::string& name, int64_t numbers, const ReadWeight& read,
                         Device& device, float* as_float, Numbers rounded) {
  const auto size = static_cast<size_t>(numbers);
  if (device.info().is_host_memory && rounded.is_null()) return read(name, {as_float, size});
  std::vector<float> values(size);
  SKEIN_RETURN_IF_ERROR(read(name, values));
  if (as_float != nullptr) SKEIN_RETURN_IF_ERROR(device.upload(values, as_float));
  return rounded.is_null() ? absl::OkStatus() : upload_rounded(values, rounded, device);
}

}  // namespace

absl::StatusOr<DecoderWeights> DecoderWeights::load(const plans::ModelSpec& model,
                                                    const plans::LayerRange& layers,
                                                    const ReadWeight& read, Device& device) {
  const NumberType type = device.info().activations;
  const bool rounds = type != NumberType::kFloat32;
  const Counts counts = count(model, layers, rounds);
  DecoderWeights weights;
  weights.begin_ = layers.begin;
  weights.has_norm_bias_ = norm_tensors(model) == 2;
  SKEIN_ASSIGN_OR_RETURN(weights.floats_, device.allocate(float_bytes(counts.floats)));
  if (counts.rounded > 0) {
    SKEIN_ASSIGN_OR_RETURN(weights.rounded_, device.allocate(counts.rounded * bytes_of(type)));
  }
  float* next_float = weights.floats_.floats();
  Numbers next_rounded = weights.rounded_.numbers(type);
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    LayerParameters& parameters = weights.layers_.emplace_back();
    for (const Tensor& tensor : tensors_of(model, layer, layers)) {
      const int64_t numbers = plans::element_count(tensor.spec);
      float* as_float = nullptr;
      Numbers rounded;
      if (tensor.is_float || !rounds) as_float = std::exchange(next_float, next_float + numbers);
      if (tensor.is_operand && rounds) {
        rounded = std::exchange(next_rounded, next_rounded + numbers);
      }
      SKEIN_RETURN_IF_ERROR(
          load_tensor(tensor.spec.name, numbers, read, device, as_float, rounded));
      parameters.weights.push_back(as_float);
      parameters.operands.push_back(rounds ? ConstNumbers(rounded) : ConstNumbers(as_float));
    }
  }
  return weights;
}

int64_t DecoderWeights::bytes(const plans::ModelSpec& model, const plans::LayerRange& layers,
                              NumberType activations) {
  const Counts counts = count(model, layers, activations != NumberType::kFloat32);
  return float_bytes(counts.floats) + counts.rounded * bytes_of(activations);
}

Head::Parameters DecoderWeights::head() const {
  const LayerParameters& head = layers_.back();
  const size_t norms = has_norm_bias_ ? 2 : 1;
  Head::Parameters parameters{};
  parameters.norm_weight = head.weights[0];
  if (has_norm_bias_) parameters.norm_bias = head.weights[1];
  // A tied head beside the embedding has no matrix of its own.
  parameters.matrix =
      head.operands.size() > norms ? head.operands[norms] : layers_.front().operands[0];
  return parameters;
}

}  // namespace skein::gpu
