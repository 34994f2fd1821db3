#include "bench/policies/mlp_task.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"

namespace skein::bench {
namespace {

/// One dense layer: weights [in, out], then bias [out].
struct Dense {
  uint64_t in = 0, out = 0;
  bool has_relu = true;

  void forward(const float* weights, const std::vector<float>& x, std::vector<float>& y) const {
    const uint64_t rows = x.size() / in;
    const float* bias = weights + in * out;
    y.resize(rows * out);
    for (uint64_t r = 0; r < rows; ++r) {
      float* to = &y[r * out];
      std::copy(bias, bias + out, to);
      for (uint64_t i = 0; i < in; ++i) {
        const float factor = x[r * in + i];
        if (factor == 0) continue;  // Frequent: dark pixels, and what ReLU has cut off.
        const float* row = weights + i * out;
        for (uint64_t o = 0; o < out; ++o) to[o] += factor * row[o];
      }
      if (!has_relu) continue;
      for (uint64_t o = 0; o < out; ++o) to[o] = std::max(to[o], 0.0f);
    }
  }

  /// `dy` is cut off where `y` is, then adds to `gradient`; overwrites `dx` unless it is null.
  void backward(const float* weights, const std::vector<float>& x, const std::vector<float>& y,
                std::vector<float>& dy, float* gradient, std::vector<float>* dx) const {
    const uint64_t rows = x.size() / in;
    float* bias = gradient + in * out;
    if (dx != nullptr) dx->assign(x.size(), 0);
    for (uint64_t r = 0; r < rows; ++r) {
      float* from = &dy[r * out];
      for (uint64_t o = 0; o < out; ++o) {
        if (has_relu && y[r * out + o] <= 0) from[o] = 0;
        bias[o] += from[o];
      }
      for (uint64_t i = 0; i < in; ++i) {
        const float factor = x[r * in + i];
        float* row = gradient + i * out;
        if (factor != 0) {
          for (uint64_t o = 0; o < out; ++o) row[o] += factor * from[o];
        }
        if (dx == nullptr) continue;
        float sum = 0;
        for (uint64_t o = 0; o < out; ++o) sum += weights[i * out + o] * from[o];
        (*dx)[r * in + i] = sum;
      }
    }
  }
};

/// The logits become the gradient of the mean loss; adds to the score.
void cross_entropy(std::vector<float>& logits, uint64_t class_count,
                   const std::vector<uint8_t>& targets, Score& score) {
  const auto rows = static_cast<double>(targets.size());
  for (size_t r = 0; r < targets.size(); ++r) {
    float* row = &logits[r * class_count];
    const float most = *std::max_element(row, row + class_count);
    if (row[targets[r]] == most) score.accuracy += 1 / rows;
    double sum = 0;
    for (uint64_t c = 0; c < class_count; ++c) sum += std::exp(static_cast<double>(row[c] - most));
    score.loss += (std::log(sum) - (row[targets[r]] - most)) / rows;
    for (uint64_t c = 0; c < class_count; ++c) {
      const double share = std::exp(static_cast<double>(row[c] - most)) / sum;
      row[c] = static_cast<float>((share - (c == targets[r] ? 1 : 0)) / rows);
    }
  }
}

}  // namespace

MlpTask::MlpTask(const LabelledData& data, uint32_t stages, uint64_t hidden)
    : data_(data), stages_(stages), widths_{data.width} {
  const uint32_t hidden_layers = stages == 1 ? 1 : stages - 1;
  widths_.insert(widths_.end(), hidden_layers, hidden);
  widths_.push_back(data.class_count);
}

std::string MlpTask::description() const {
  std::string text = absl::StrCat("MLP ", widths_[0]);
  for (size_t i = 1; i < widths_.size(); ++i) absl::StrAppend(&text, "-", widths_[i]);
  return absl::StrCat(text, " on ", data_.source, ", ", data_.training.count(), " samples, ",
                      data_.held_out.count(), " held out");
}

MlpTask::Layers MlpTask::layers_of(uint32_t stage) const {
  if (stages_ == 1) return {0, widths_.size() - 1};
  return {stage, stage + 1};
}

std::vector<float> MlpTask::initial_weights(uint32_t stage, uint64_t seed) const {
  std::vector<float> weights;
  const Layers layers = layers_of(stage);
  for (size_t layer = layers.begin; layer < layers.end; ++layer) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(widths_[layer]));
    const uint64_t matrix = widths_[layer] * widths_[layer + 1];
    for (uint64_t i = 0; i < weight_count(layer); ++i) {
      const double drawn = deviation * plans::random_normal(seed, 100 + layer, i);
      weights.push_back(i < matrix ? static_cast<float>(drawn) : 0.0f);
    }
  }
  return weights;
}

std::vector<size_t> MlpTask::tensor_floats(uint32_t stage) const {
  std::vector<size_t> floats;
  const Layers layers = layers_of(stage);
  for (size_t layer = layers.begin; layer < layers.end; ++layer) {
    floats.push_back(widths_[layer] * widths_[layer + 1]);  // Behind them a bias for each output.
    floats.push_back(widths_[layer + 1]);
  }
  return floats;
}

std::vector<uint32_t> MlpTask::skewed_order() const {
  std::vector<uint32_t> order(data_.training.count());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return data_.training.classes[a] < data_.training.classes[b];
  });
  return order;
}

std::vector<float> MlpTask::gather(std::span<const uint32_t> samples) const {
  std::vector<float> inputs;
  inputs.reserve(samples.size() * data_.width);
  for (const uint32_t sample : samples) {
    const auto first = data_.training.inputs.begin() + static_cast<ptrdiff_t>(sample * data_.width);
    inputs.insert(inputs.end(), first, first + static_cast<ptrdiff_t>(data_.width));
  }
  return inputs;
}

std::vector<std::vector<float>> MlpTask::outputs(Layers layers, std::span<const float> weights,
                                                 std::vector<float> input) const {
  std::vector<std::vector<float>> values = {std::move(input)};
  const float* at = weights.data();
  for (size_t layer = layers.begin; layer < layers.end; ++layer) {
    const Dense dense{widths_[layer], widths_[layer + 1], !is_last(layer)};
    std::vector<float> output;
    dense.forward(at, values.back(), output);
    values.push_back(std::move(output));
    at += weight_count(layer);
  }
  return values;
}

std::vector<float> MlpTask::forward(uint32_t stage, std::span<const float> weights,
                                    std::span<const uint32_t> samples,
                                    std::span<const float> input) {
  return outputs(layers_of(stage), weights,
                 stage == 0 ? gather(samples) : std::vector<float>(input.begin(), input.end()))
      .back();
}

std::vector<float> MlpTask::backward(uint32_t stage, std::span<const float> weights,
                                     std::span<const uint32_t> samples,
                                     std::span<const float> input,
                                     std::span<const float> output_gradient,
                                     std::span<float> gradient) {
  const Layers layers = layers_of(stage);
  std::vector<std::vector<float>> values =
      outputs(layers, weights,
              stage == 0 ? gather(samples) : std::vector<float>(input.begin(), input.end()));
  std::vector<float> dy(output_gradient.begin(), output_gradient.end());
  if (stage + 1 == stages_) {
    std::vector<uint8_t> targets;
    for (const uint32_t sample : samples) targets.push_back(data_.training.classes[sample]);
    Score ignored;
    dy = values.back();
    cross_entropy(dy, data_.class_count, targets, ignored);
  }
  std::fill(gradient.begin(), gradient.end(), 0.0f);
  uint64_t at = gradient.size();
  for (size_t layer = layers.end; layer-- > layers.begin;) {
    at -= weight_count(layer);
    const Dense dense{widths_[layer], widths_[layer + 1], !is_last(layer)};
    const size_t local = layer - layers.begin;
    std::vector<float> dx;
    dense.backward(weights.data() + at, values[local], values[local + 1], dy, gradient.data() + at,
                   layer > 0 ? &dx : nullptr);
    dy = std::move(dx);
  }
  return dy;
}

Score MlpTask::evaluate(const std::vector<std::vector<float>>& weights) {
  std::vector<float> values = data_.held_out.inputs;
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    values = outputs(layers_of(stage), weights[stage], std::move(values)).back();
  }
  Score score;
  cross_entropy(values, data_.class_count, data_.held_out.classes, score);
  return score;
}

}  // namespace skein::bench
