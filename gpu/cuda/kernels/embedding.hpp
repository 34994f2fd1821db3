#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/cuda/launch_shape.hpp"
#include "gpu/numbers.hpp"

namespace skein::gpu::kernels {

/// y [rows, columns] = wte[token] + wpe[row % seq_len], without positions if wpe is null.
/// tokens [rows]. Bytes: (8 + b) rows columns with b bytes for a number of y, or 4 + b, less what
/// the caches hold of the tables.
void embedding_forward(const int32_t* tokens, const float* wte, const float* wpe, Numbers y,
                       int64_t rows, int64_t seq_len, int64_t columns, cudaStream_t stream);

/// dwte[token] += its rows of dy, in ascending order. `segments` name each token once, `order`
/// lists the rows behind them. Bytes: b rows columns, and 8 columns for every segment.
struct TokenScatter {
  ConstNumbers dy;
  const TokenRows* segments = nullptr;
  int64_t segment_count = 0;
  const int32_t* order = nullptr;
  float* dwte = nullptr;
  int64_t columns = 0;
};
void embedding_backward_tokens(const TokenScatter& scatter, cudaStream_t stream);

/// dwpe[position] += rows position, position + seq_len, ... of dy [rows, columns], in this order.
/// Bytes: b rows columns, and 8 seq_len columns.
void embedding_backward_positions(ConstNumbers dy, float* dwpe, int64_t rows, int64_t seq_len,
                                  int64_t columns, cudaStream_t stream);

}  // namespace skein::gpu::kernels
