#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/numbers.hpp"

namespace skein::gpu::kernels {

/// Overwrites y [rows, columns], mean and rstd [rows]. Without `mean` it is an RMS norm, which has
/// no bias. Numbers of one call have one type, of b bytes each. Bytes: 2 b rows columns; FLOPs:
/// about 8 rows columns, of an RMS norm 4. Rows that a warp cannot hold in registers are read
/// again, from the caches.
struct NormForward {
  ConstNumbers x;
  const float* weight = nullptr;
  const float* bias = nullptr;
  Numbers y;
  float* mean = nullptr;
  float* rstd = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  float epsilon = 0;
};
void norm_forward(const NormForward& norm, cudaStream_t stream);

/// Overwrites dx [rows, columns] with `residual`, which may be dx, or be null, plus the input
/// gradient; adds to dweight and dbias [columns]. `partial` holds 2 norm_slab_count(rows) columns
/// floats. Without `mean` it is an RMS norm, which has no dbias.
/// Bytes: 4 b rows columns, 3 b without `residual`; rows of more numbers than a block can hold in
/// registers are read again, from the caches. FLOPs: about 14 rows columns, of an RMS norm 11.
struct NormBackward {
  ConstNumbers dy, x;
  const float* weight = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  ConstNumbers residual;
  Numbers dx;
  float* dweight = nullptr;
  float* dbias = nullptr;
  float* partial = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};
void norm_backward(const NormBackward& norm, cudaStream_t stream);

/// The widest rows that fit: their sums are in shared memory.
constexpr int64_t kNormColumnsMax = 28 * 1024;

}  // namespace skein::gpu::kernels
