#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/numbers.hpp"

namespace skein::gpu::kernels {

/// Adds the column sums of dy [rows, columns] to db. `partial` holds slab_count(rows) columns
/// floats. Numbers have b bytes each. Bytes: b rows columns; FLOPs: rows columns.
void add_column_sums(ConstNumbers dy, float* db, float* partial, int64_t rows, int64_t columns,
                     cudaStream_t stream);

/// Sums that were made slab by slab.
struct SlabSums {
  const float* partial = nullptr;  // [slabs, columns], and with `second` as many behind it.
  float* first = nullptr;          // [columns], added to.
  float* second = nullptr;         // Likewise, or null.
  int64_t slabs = 0;
  int64_t columns = 0;
};
void add_slabs(const SlabSums& sums, cudaStream_t stream);

}  // namespace skein::gpu::kernels
