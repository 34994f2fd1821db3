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
  Head(const LayerShape& shape, const LogitsLayout& layout);

  /// Parameters: norm weight, norm bias, which an RMS norm has not got (null), and the matrix
  /// [V, C].
  struct Parameters {
    const float *norm_weight, *norm_bias;
    ConstNumbers matrix;  // As products read it.
    float *dnorm_weight, *dnorm_bias, *dmatrix;
  };
  int64_t scratch_numbers() const;
  int64_t statistics_floats() const;
  /// Memory in which nothing survives.
  struct Memory {
    Numbers scratch;
    float* statistics = nullptr;
  };

  struct Loss {
    double* sum = nullptr;
    int64_t* tokens = nullptr;
  };
  /// Adds to the loss. With `gradient` [N, C], overwrites it with that of `input` and adds to the
  /// parameters' gradients, each token's loss multiplied by `scale`. Without (null), only the loss.
  void forward(Ops& ops, const Parameters& parameters, ConstNumbers input,
               std::span<const int32_t> targets, float scale, const Memory& memory,
               Numbers gradient, const Loss& loss) const;
  /// Logits [V] of one row of `input` [N, C].
  void logits(Ops& ops, const Parameters& parameters, ConstNumbers input, int64_t row,
              const Memory& memory, std::span<float> logits) const;

 private:
  struct Scratch {
    Numbers normed, dnormed, logits;
    float *mean, *rstd;
  };
  Scratch take(const Memory& memory) const;

  LayerShape shape_;
  int64_t stride_;      // Between rows of logits.
  int64_t piece_rows_;  // Rows whose logits exist at once.
};

}  // namespace skein::gpu
