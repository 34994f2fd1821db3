#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/numbers.hpp"

namespace skein::gpu::kernels {

/// Overwrites y [rows, columns], mean and rstd [rows]. With `a`, first overwrites x = a + b, which
/// may be a or b, so that the residual is added where it is read. Without `mean` it is an RMS norm,
/// which has no bias. Numbers of one call have one type, of b bytes each.
/// Bytes: 2 b rows columns, or 4 b with `a`; FLOPs: about 8 rows columns, of an RMS norm 4. The
/// second and third look at a row find it in the caches.
struct NormForward {
  ConstNumbers a, b;
  Numbers x;  // Only written with `a`.
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

/// Adds to dx [rows, columns], dweight and dbias [columns]. `partial` holds
/// 2 slab_count(rows) columns floats. Without `mean` it is an RMS norm, which has no dbias.
/// Bytes: 6 b rows columns: x and dy are read twice, dx is read and written. FLOPs: about 14 rows
/// columns, of an RMS norm 11.
struct NormBackward {
  ConstNumbers dy, x;
  const float* weight = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  Numbers dx;
  float* dweight = nullptr;
  float* dbias = nullptr;
  float* partial = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};
void norm_backward(const NormBackward& norm, cudaStream_t stream);

/// Adds the column sums of dy [rows, columns] to db. `partial` holds slab_count(rows) columns
/// floats. Bytes: b rows columns; FLOPs: rows columns.
void add_column_sums(ConstNumbers dy, float* db, float* partial, int64_t rows, int64_t columns,
                     cudaStream_t stream);

}  // namespace skein::gpu::kernels
