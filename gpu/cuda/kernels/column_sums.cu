#include "gpu/cuda/kernels/column_sums.hpp"
#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kRowLanes = 8;    // Rows that a block looks at together.
constexpr int kSlabLanes = 32;  // Slabs likewise.

/// Sums of one slab of rows: partial[slab][columns]. Blocks of 32 by kRowLanes threads, each with
/// kWidth columns; grid = (columns / (32 kWidth), slabs). Bound: DRAM.
template <class T, int kWidth>
__global__ void column_sums_kernel(const T* all_dy, float* partial, int64_t rows, int64_t columns,
                                   int64_t rows_of_slab) {
  __shared__ float lanes[kRowLanes][kWidth][kWarpSize];
  const int64_t column = (int64_t{blockIdx.x} * kWarpSize + threadIdx.x) * kWidth;
  const int64_t begin = int64_t{blockIdx.y} * rows_of_slab;
  const int64_t end = begin + rows_of_slab < rows ? begin + rows_of_slab : rows;
  float sums[kWidth] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowLanes) {
      float values[kWidth];
      load_pack(all_dy + row * columns + column, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) lanes[threadIdx.y][i][threadIdx.x] = sums[i];
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    for (int lane = 1; lane < kRowLanes; ++lane) sums[i] += lanes[lane][i][threadIdx.x];
    partial[int64_t{blockIdx.y} * columns + column + i] = sums[i];
  }
}

/// Blocks of 32 columns by kSlabLanes slabs, grid = (columns / 32, 1 or 2).
__global__ void add_slabs_kernel(SlabSums all) {
  __shared__ float lanes[kSlabLanes][kWarpSize];
  const int64_t column = int64_t{blockIdx.x} * kWarpSize + threadIdx.x;
  const float* partial = all.partial + blockIdx.y * all.slabs * all.columns;
  float* to = blockIdx.y == 0 ? all.first : all.second;
  float sum = 0;
  if (column < all.columns) {
#pragma unroll 4
    for (int64_t slab = threadIdx.y; slab < all.slabs; slab += kSlabLanes) {
      sum += partial[slab * all.columns + column];
    }
  }
  lanes[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= all.columns) return;
  for (int lane = 1; lane < kSlabLanes; ++lane) sum += lanes[lane][threadIdx.x];
  to[column] += sum;
}

template <class T, int kWidth>
void launch(const T* dy, float* partial, int64_t rows, int64_t columns, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_divide(columns, kWarpSize * kWidth)),
                  static_cast<unsigned>(slab_count(rows)));
  const dim3 threads(kWarpSize, kRowLanes);
  column_sums_kernel<T, kWidth>
      <<<grid, threads, 0, stream>>>(dy, partial, rows, columns, slab_rows(rows));
}

template <class T>
void launch(ConstNumbers dy, float* partial, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (fits_packs(dy, columns, kWide<T>)) {
    launch<T, kWide<T>>(numbers_of<T>(dy), partial, rows, columns, stream);
  } else {
    launch<T, 1>(numbers_of<T>(dy), partial, rows, columns, stream);
  }
}

}  // namespace

void add_column_sums(ConstNumbers dy, float* db, float* partial, int64_t rows, int64_t columns,
                     cudaStream_t stream) {
  if (rows == 0) return;
  if (is_float32(dy)) {
    launch<float>(dy, partial, rows, columns, stream);
  } else {
    launch<__nv_bfloat16>(dy, partial, rows, columns, stream);
  }
  add_slabs({partial, db, nullptr, slab_count(rows), columns}, stream);
}

void add_slabs(const SlabSums& sums, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_divide(sums.columns, kWarpSize)),
                  sums.second == nullptr ? 1 : 2);
  const dim3 threads(kWarpSize, kSlabLanes);
  add_slabs_kernel<<<grid, threads, 0, stream>>>(sums);
}

}  // namespace skein::gpu::kernels
