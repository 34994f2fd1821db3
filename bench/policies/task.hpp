#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace skein::bench {

struct Score {
  double loss = 0;      // Mean over what is held out.
  double accuracy = 0;  // Share, 0 to 1; of a language model that of the next byte.
};

/// A model that is cut into stages, and its data: pure mathematics, of given weights. Used by one
/// thread.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::string description() const = 0;

  virtual uint32_t stage_count() const = 0;
  /// A stage's weights in one flat buffer; the seed says which ones.
  virtual std::vector<float> initial_weights(uint32_t stage, uint64_t seed) const = 0;
  /// Sizes of the tensors that tile them.
  virtual std::vector<size_t> tensor_floats(uint32_t stage) const = 0;

  /// Samples in the order that makes parts unlike: by class, or by place in the text.
  virtual std::vector<uint32_t> skewed_order() const = 0;

  /// Outputs of a stage that is not the last one. `input`: those of the stage before; empty for
  /// the first one, which takes the samples.
  virtual std::vector<float> forward(uint32_t stage, std::span<const float> weights,
                                     std::span<const uint32_t> samples,
                                     std::span<const float> input) = 0;
  /// Overwrites the gradient of the mean loss of the samples; returns that of `input`, empty for
  /// the first stage. `output_gradient`: of the stage's outputs; empty for the last one, which
  /// makes the loss.
  virtual std::vector<float> backward(uint32_t stage, std::span<const float> weights,
                                      std::span<const uint32_t> samples,
                                      std::span<const float> input,
                                      std::span<const float> output_gradient,
                                      std::span<float> gradient) = 0;
  /// On what is held out. `weights` by stage.
  virtual Score evaluate(const std::vector<std::vector<float>>& weights) = 0;
};

}  // namespace skein::bench
