#include "gpu/model/decoder.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/model/head.hpp"
#include "gpu/model/key_value_cache.hpp"
#include "gpu/model/layer.hpp"
#include "gpu/model/rotary_turns.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

Ops::Attention attention_of(const plans::ModelSpec& model) {
  return {1, 1, model.heads, plans::kv_heads(model), plans::head_size(model)};
}

int64_t weight_floats(const plans::ModelSpec& model) {
  int64_t total = 0;
  for (const auto& spec : plans::range_parameters(model, {0, plans::layer_count(model)})) {
    total += plans::element_count(spec);
  }
  return total;
}

/// What the tokens that are added at once are computed in.
struct WorkingFloats {
  WorkingFloats(const LayerShape& shape, const Layer& block, const Head& head)
      : passing(2 * shape.activations() + block.stash_numbers()),
        scratch(std::max(block.scratch_numbers(), head.scratch_numbers())),
        statistics(std::max(block.statistics_floats(), head.statistics_floats())) {}
  int64_t passing, scratch, statistics;
  int64_t sum() const { return passing + scratch + statistics; }
};

class TransformerDecoder final : public Decoder {
 public:
  TransformerDecoder(const plans::ModelSpec& model, int64_t positions)
      : model_(model), positions_(positions) {}

  absl::Status load(const ReadWeight& read, Device& device) {
    SKEIN_ASSIGN_OR_RETURN(weights_, device.allocate(weight_floats(model_) * kFloatBytes));
    for (int64_t block = 0; block < model_.layers; ++block) {
      SKEIN_ASSIGN_OR_RETURN(KeyValueCache cache,
                             KeyValueCache::create(attention_of(model_), positions_, device));
      caches_.push_back(std::move(cache));
    }
    SKEIN_ASSIGN_OR_RETURN(turns_, upload_rotary_turns(model_, positions_, device));
    float* next = weights_.floats();
    for (int64_t layer = 0; layer < plans::layer_count(model_); ++layer) {
      std::vector<float*>& tensors = layers_.emplace_back().weights;
      for (const auto& spec : plans::layer_parameters(model_, layer, whole())) {
        tensors.push_back(next);
        layers_.back().operands.emplace_back(next);
        const int64_t count = plans::element_count(spec);
        SKEIN_RETURN_IF_ERROR(read(spec.name, {next, static_cast<size_t>(count)}));
        next += count;
      }
    }
    device_ = &device;
    return absl::OkStatus();
  }

  int64_t length() const override { return caches_.front().length(); }
  void clear() override {
    for (KeyValueCache& cache : caches_) cache.clear();
  }

  absl::Status extend(Ops& ops, std::span<const int32_t> tokens, std::span<float> logits) override {
    const auto count = static_cast<int64_t>(tokens.size());
    const bool fits = count >= 1 && length() + count <= positions_ &&
                      static_cast<int64_t>(logits.size()) == model_.vocab_size;
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(count, " tokens behind ", length(), " of ",
                                                     positions_, ", and ", logits.size(),
                                                     " logits"));
    }
    const LayerShape shape = {model_, 1, count};
    const auto block = make_block(shape);
    const Head head({model_, 1, 1}, device_->info().logits);  // Logits of one row.
    SKEIN_RETURN_IF_ERROR(reserve(shape, *block, head));
    const int64_t first = length();
    Numbers x = passing_.floats();
    Numbers y = x + shape.activations();
    Layer::Memory memory = {x,       y + shape.activations(), statistics_.floats(),
                            nullptr, scratch_.floats(),       nullptr};
    const std::vector<float*>& embedding = layers_.front().weights;
    const bool has_rotary = plans::has_rotary(model_);
    if (has_rotary) memory.turns = turns_.floats() + first * turn_floats();
    ops.embedding_forward({tokens, count, model_.channels}, embedding[0],
                          has_rotary ? nullptr : embedding[1] + first * model_.channels, x);
    for (size_t b = 0; b < caches_.size(); ++b) {
      memory.input = x;
      memory.cache = &caches_[b];
      block->forward(ops, layers_[b + 1], memory, y);
      std::swap(x, y);
    }
    head.logits(ops, head_parameters(), x, count - 1, {scratch_.floats(), statistics_.floats()},
                logits);
    return absl::OkStatus();
  }

 private:
  plans::LayerRange whole() const { return {0, plans::layer_count(model_)}; }
  int64_t turn_floats() const { return turns_.bytes() / kFloatBytes / positions_; }

  Head::Parameters head_parameters() const {
    const LayerParameters& head = layers_.back();
    const size_t norms = plans::has_rms_norm(model_) ? 1 : 2;
    Head::Parameters parameters{};
    parameters.norm_weight = head.weights[0];
    if (norms == 2) parameters.norm_bias = head.weights[1];
    // A tied head has no matrix of its own.
    parameters.matrix =
        head.operands.size() > norms ? head.operands[norms] : layers_.front().operands[0];
    return parameters;
  }

  /// Memory for the largest number of tokens so far.
  absl::Status reserve(const LayerShape& shape, const Layer& block, const Head& head) {
    if (shape.seq_len <= reserved_) return absl::OkStatus();
    const WorkingFloats floats(shape, block, head);
    SKEIN_ASSIGN_OR_RETURN(passing_, device_->allocate(floats.passing * kFloatBytes));
    SKEIN_ASSIGN_OR_RETURN(scratch_, device_->allocate(floats.scratch * kFloatBytes));
    SKEIN_ASSIGN_OR_RETURN(statistics_, device_->allocate(floats.statistics * kFloatBytes));
    reserved_ = shape.seq_len;
    return absl::OkStatus();
  }

  plans::ModelSpec model_;
  int64_t positions_;
  Device* device_ = nullptr;
  Buffer weights_, turns_;
  std::vector<LayerParameters> layers_;  // Without gradients.
  std::vector<KeyValueCache> caches_;    // One for each block.
  int64_t reserved_ = 0;                 // Tokens that the memory below is for.
  Buffer passing_, scratch_, statistics_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::create(const plans::ModelSpec& model,
                                                         int64_t positions, const ReadWeight& read,
                                                         Device& device) {
  if (!device.info().is_host_memory || !device.info().computes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text is drawn on the processor only, not on ", device.info().name));
  }
  if (positions < 1 || positions > model.positions || model.layers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(positions, " positions, the model is made for ", model.positions));
  }
  auto decoder = std::make_unique<TransformerDecoder>(model, positions);
  SKEIN_RETURN_IF_ERROR(decoder->load(read, device));
  return std::unique_ptr<Decoder>(std::move(decoder));
}

int64_t Decoder::memory_bytes(const plans::ModelSpec& model, int64_t positions, int64_t added) {
  const LayerShape shape = {model, 1, added};
  const WorkingFloats working(shape, *make_block(shape), Head({model, 1, 1}, LogitsLayout{}));
  const int64_t turns = plans::has_rotary(model) ? positions * plans::head_size(model) : 0;
  return (weight_floats(model) + turns + working.sum()) * kFloatBytes +
         model.layers * KeyValueCache::bytes(attention_of(model), positions);
}

int64_t context_begin(int64_t count, int64_t window) {
  const int64_t step = std::max<int64_t>(window / 2, 1);
  return count <= window ? 0 : (count - window + step - 1) / step * step;
}

}  // namespace skein::gpu
