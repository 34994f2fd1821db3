#pragma once

#include <vector>

#include "bench/policies/labelled_data.hpp"
#include "bench/policies/task.hpp"

namespace skein::bench {

/// A classifier of dense layers with ReLU between them, and cross-entropy. With one stage it has
/// one hidden layer; with S > 1 it has S layers, one per stage.
class MlpTask final : public Task {
 public:
  /// `data` must live longer.
  MlpTask(const LabelledData& data, uint32_t stages, uint64_t hidden);

  std::string description() const override;
  uint32_t stage_count() const override { return stages_; }
  std::vector<float> initial_weights(uint32_t stage, uint64_t seed) const override;
  std::vector<size_t> tensor_floats(uint32_t stage) const override;
  std::vector<uint32_t> skewed_order() const override;
  std::vector<float> forward(uint32_t stage, std::span<const float> weights,
                             std::span<const uint32_t> samples,
                             std::span<const float> input) override;
  std::vector<float> backward(uint32_t stage, std::span<const float> weights,
                              std::span<const uint32_t> samples, std::span<const float> input,
                              std::span<const float> output_gradient,
                              std::span<float> gradient) override;
  Score evaluate(const std::vector<std::vector<float>>& weights) override;

 private:
  struct Layers {
    size_t begin = 0, end = 0;
  };
  Layers layers_of(uint32_t stage) const;
  bool is_last(size_t layer) const { return layer + 2 == widths_.size(); }
  uint64_t weight_count(size_t layer) const { return (widths_[layer] + 1) * widths_[layer + 1]; }
  std::vector<float> gather(std::span<const uint32_t> samples) const;
  /// Outputs of each of the stage's layers, after its input.
  std::vector<std::vector<float>> outputs(Layers layers, std::span<const float> weights,
                                          std::vector<float> input) const;

  const LabelledData& data_;
  uint32_t stages_;
  std::vector<uint64_t> widths_;  // The width of the input, then that of each layer's output.
};

}  // namespace skein::bench
