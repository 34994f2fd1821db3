#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/numbers.hpp"

namespace skein::gpu::kernels {

/// logits [rows, vocab_size], whose rows are `stride` apart, := (softmax - one hot of the target) *
/// scale, rows of zeros where the target is -1; what is between rows stays. losses [rows] := the
/// rows' losses, 0 where the target is -1. sum := that of the losses, in an order that depends on
/// `rows` only.
/// Bytes: 3 b rows vocab_size with b bytes for a logit: read, read again (from the second-level
/// cache while its rows fit), written, 16 bytes at a time where rows are aligned to that. FLOPs:
/// about 6 rows vocab_size and two special functions each.
struct CrossEntropy {
  const int32_t* targets = nullptr;
  Numbers logits;
  double* losses = nullptr;
  double* sum = nullptr;
  int64_t rows = 0;
  int64_t vocab_size = 0;
  int64_t stride = 0;
  float scale = 0;
};
void cross_entropy(const CrossEntropy& call, cudaStream_t stream);

}  // namespace skein::gpu::kernels
