#pragma once

#include <cstdint>
#include <span>

#include "gpu/model/layer.hpp"

namespace skein::gpu {

/// Final norm, product with the vocabulary and cross-entropy. Logits exist for a piece of the rows
/// at a time: the forward makes the gradient of the loss in their place and multiplies it at once,
/// so they are neither kept nor computed twice (as in Liger Kernel's fused linear cross-entropy).
/// The backward has then nothing left to do.
class Head {
 public:
  explicit Head(const LayerShape& shape);

  /// Parameters: norm weight, norm bias, which an RMS norm has not got (null), and the matrix
  /// [V, C].
  struct Parameters {
    const float *norm_weight, *norm_bias, *matrix;
    float *dnorm_weight, *dnorm_bias, *dmatrix;
  };
  int64_t scratch_floats() const;

  struct Loss {
    double* sum = nullptr;
    int64_t* tokens = nullptr;
  };
  /// Adds to the loss. With `gradient` [N, C], overwrites it with that of `input` and adds to the
  /// parameters' gradients, each token's loss multiplied by `scale`. Without (null), only the loss.
  void forward(Ops& ops, const Parameters& parameters, const float* input,
               std::span<const int32_t> targets, float scale, float* scratch, float* gradient,
               const Loss& loss) const;
  /// Logits [V] of one row of `input` [N, C].
  void logits(Ops& ops, const Parameters& parameters, const float* input, int64_t row,
              float* scratch, std::span<float> logits) const;

 private:
  struct Scratch {
    float *normed, *dnormed, *mean, *rstd, *logits;
  };
  Scratch take(float* scratch) const;

  LayerShape shape_;
  int64_t piece_rows_;  // Rows whose logits exist at once.
};

}  // namespace skein::gpu
