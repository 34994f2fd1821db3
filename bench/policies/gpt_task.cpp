#include "bench/policies/gpt_task.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kSeqLen = 16;
constexpr uint64_t kHeldOutEvery = 10;
constexpr uint64_t kHeldOutMax = 64;                   // Windows: evaluations are frequent.
constexpr uint64_t kTextBytesMax = uint64_t{1} << 20;  // More is never seen.

void must(const absl::Status& status) { SKEIN_CHECK(status.ok()) << status.ToString(); }

}  // namespace

absl::StatusOr<std::unique_ptr<GptTask>> GptTask::create(const std::string& text_path,
                                                         uint64_t rows) {
  std::ifstream file(text_path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(text_path, ": cannot be opened"));
  std::vector<uint8_t> text((std::istreambuf_iterator<char>(file)), {});
  text.resize(std::min<uint64_t>(text.size(), kTextBytesMax));
  if (text.size() < 2 * kHeldOutEvery * rows * kSeqLen) {
    return absl::InvalidArgumentError(
        absl::StrCat(text_path, ": ", text.size(), " bytes are too few; name a longer text"));
  }
  std::unique_ptr<GptTask> task(new GptTask(text_path, std::move(text), rows));  // Private.
  SKEIN_ASSIGN_OR_RETURN(task->model_,
                         gpu::StageModel::create(task->model_options(1), *task->device_));
  return task;
}

GptTask::GptTask(std::string text_path, std::vector<uint8_t> text, uint64_t rows)
    : text_path_(std::move(text_path)),
      text_(std::move(text)),
      rows_(rows),
      device_(gpu::make_host_device(1)),
      tokens_(rows * kSeqLen),
      targets_(rows * kSeqLen) {
  const uint64_t windows = (text_.size() - 1) / kSeqLen;
  for (uint32_t window = 0; window < windows; ++window) {
    const bool is_held_out = window % kHeldOutEvery == kHeldOutEvery - 1;
    (is_held_out ? held_out_ : training_).push_back(window);
  }
  // Spread over the text, and a multiple of the rows that the model takes at once.
  const uint64_t wanted = std::min<uint64_t>(kHeldOutMax, held_out_.size()) / rows * rows;
  std::vector<uint32_t> spread;
  for (uint64_t i = 0; i < wanted; ++i) spread.push_back(held_out_[i * held_out_.size() / wanted]);
  held_out_ = std::move(spread);
}

gpu::StageModelOptions GptTask::model_options(uint64_t seed) const {
  gpu::StageModelOptions options;
  options.model.vocab_size = 256;
  options.model.positions = kSeqLen;
  options.model.layers = 1;
  options.model.heads = 2;
  options.model.channels = 16;
  options.model.init_std = 0.1;
  options.layers = {0, plans::layer_count(options.model)};
  options.rows = static_cast<int64_t>(rows_);
  options.seq_len = kSeqLen;
  options.seed = seed;
  return options;
}

std::string GptTask::description() const {
  return absl::StrCat("GPT of ", model_->stage_gradients().size(), " weights on ", text_path_, ", ",
                      training_.size(), " windows of ", kSeqLen, " bytes, ", held_out_.size(),
                      " held out");
}

std::vector<float> GptTask::initial_weights(uint32_t /*stage*/, uint64_t seed) const {
  const auto model = gpu::StageModel::create(model_options(seed), *device_);
  must(model.status());
  std::vector<float> weights;
  for (size_t p = 0; p < (*model)->parameters().size(); ++p) {
    std::vector<float> own(static_cast<size_t>(plans::element_count((*model)->parameters()[p])));
    must((*model)->read_state(p, gpu::StateKind::kWeight, own));
    weights.insert(weights.end(), own.begin(), own.end());
  }
  return weights;
}

std::vector<size_t> GptTask::tensor_floats(uint32_t /*stage*/) const {
  std::vector<size_t> floats;
  for (const plans::ParameterSpec& each : model_->parameters()) {
    floats.push_back(static_cast<size_t>(plans::element_count(each)));
  }
  return floats;
}

std::vector<uint32_t> GptTask::skewed_order() const { return training_; }

void GptTask::set_weights(std::span<const float> weights) {
  size_t begin = 0;
  for (size_t p = 0; p < model_->parameters().size(); ++p) {
    const auto count = static_cast<size_t>(plans::element_count(model_->parameters()[p]));
    must(model_->write_state(p, gpu::StateKind::kWeight, weights.subspan(begin, count)));
    begin += count;
  }
  SKEIN_CHECK(begin == weights.size()) << begin << " " << weights.size();
}

void GptTask::fill(std::span<const uint32_t> windows) {
  SKEIN_CHECK(windows.size() == rows_) << windows.size();
  for (size_t row = 0; row < windows.size(); ++row) {
    for (size_t t = 0; t < kSeqLen; ++t) {
      tokens_[row * kSeqLen + t] = text_[windows[row] * kSeqLen + t];
      targets_[row * kSeqLen + t] = text_[windows[row] * kSeqLen + t + 1];
    }
  }
}

std::vector<float> GptTask::forward(uint32_t, std::span<const float>, std::span<const uint32_t>,
                                    std::span<const float>) {
  return {};  // Never called: there is one stage.
}

std::vector<float> GptTask::backward(uint32_t /*stage*/, std::span<const float> weights,
                                     std::span<const uint32_t> samples,
                                     std::span<const float> /*input*/,
                                     std::span<const float> /*output_gradient*/,
                                     std::span<float> gradient) {
  set_weights(weights);
  fill(samples);
  must(model_->start_step(ops_, 1.0 / static_cast<double>(rows_ * kSeqLen)));
  must(model_->forward(ops_, 0, {.tokens = tokens_, .targets = targets_}, {}));
  must(model_->backward(ops_, 0, {}, {}));
  const std::span<float> computed = model_->stage_gradients();
  SKEIN_CHECK(computed.size() == gradient.size()) << computed.size();
  std::copy(computed.begin(), computed.end(), gradient.begin());
  return {};
}

Score GptTask::evaluate(const std::vector<std::vector<float>>& weights) {
  set_weights(weights[0]);
  model_->reset_loss();
  for (size_t begin = 0; begin < held_out_.size(); begin += rows_) {
    fill(std::span(held_out_).subspan(begin, rows_));
    must(model_->evaluate(ops_, {.tokens = tokens_, .targets = targets_}, {}));
  }
  return {.loss = model_->loss_sum() / static_cast<double>(model_->loss_tokens())};
}

}  // namespace skein::bench
