#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/norm.hpp"
#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kRowWarps = 4;     // Rows of a block: one warp each.
constexpr int kColumnLanes = 8;  // Rows that a block of the column sums looks at together.
constexpr int kBlockWarps = 8;   // At most, of a backward.
/// bfloat16 numbers that a lane takes at once where they are aligned.
constexpr int kWide = 4;

/// One warp per row, grid = ceil(rows / kRowWarps), no shared memory. Bound: DRAM.
template <class T, int kWidth, bool kCenters>
__global__ void norm_forward_kernel(NormForward norm, const T* all_x, T* all_y) {
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.y;
  if (row >= norm.rows) return;
  const int64_t columns = norm.columns;
  const int64_t first = int64_t{threadIdx.x} * kWidth;
  const float inverse = 1.0F / static_cast<float>(columns);
  const T* x = all_x + row * columns;
  float values[kWidth];
  float sum = 0;
  float squares = 0;
  for (int64_t c = first; c < columns; c += kWarpSize * kWidth) {
    load_pack(x + c, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (kCenters) {
        sum += values[i];
      } else {
        squares += values[i] * values[i];
      }
    }
  }
  float mean = 0;
  if constexpr (kCenters) {
    mean = warp_sum(sum) * inverse;
    for (int64_t c = first; c < columns; c += kWarpSize * kWidth) {
      load_pack(x + c, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float centered = values[i] - mean;
        squares += centered * centered;
      }
    }
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) * inverse + norm.epsilon);
  T* y = all_y + row * columns;
  for (int64_t c = first; c < columns; c += kWarpSize * kWidth) {
    load_pack(x + c, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (kCenters) {
        values[i] = (values[i] - mean) * rstd * norm.weight[c + i] + norm.bias[c + i];
      } else {
        values[i] = values[i] * rstd * norm.weight[c + i];
      }
    }
    store_pack(values, y + c);
  }
  if (threadIdx.x != 0) return;
  if constexpr (kCenters) norm.mean[row] = mean;
  norm.rstd[row] = rstd;
}

/// The sum over a block's kColumnLanes rows of threads, in their order, for those of row 0. Every
/// thread must call.
__device__ inline float lane_sum(float value) {
  __shared__ float lanes[kColumnLanes][kWarpSize];
  lanes[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.y != 0) return 0;
  for (int lane = 1; lane < kColumnLanes; ++lane) value += lanes[lane][threadIdx.x];
  return value;
}

/// Two sums over a block of up to kBlockWarps warps; all threads get both. Every thread must call.
__device__ inline float2 block_sums(float first, float second) {
  __shared__ float2 sums[kBlockWarps];
  first = warp_sum(first);
  second = warp_sum(second);
  __syncthreads();  // The memory may still be read from an earlier call.
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = make_float2(first, second);
  __syncthreads();
  float2 all = make_float2(0, 0);
  for (unsigned warp = 0; warp < blockDim.x / kWarpSize; ++warp) {
    all.x += sums[warp].x;
    all.y += sums[warp].y;
  }
  return all;
}

/// One block per slab of rows, one row after the other; grid = slabs. Shared memory: a float for
/// each column of dweight, and behind those of dbias, which belongs to one thread. Bound: DRAM.
template <class T, int kWidth, bool kCenters>
__global__ void norm_backward_kernel(NormBackward norm, const T* all_dy, const T* all_x,
                                     const T* all_residual, T* all_dx, int64_t rows_of_slab) {
  extern __shared__ __align__(16) unsigned char memory[];
  float* weights = reinterpret_cast<float*>(memory);
  const int64_t columns = norm.columns;
  float* biases = weights + columns;
  const int64_t first = int64_t{threadIdx.x} * kWidth;
  const int64_t step = int64_t{blockDim.x} * kWidth;
  const float inverse = 1.0F / static_cast<float>(columns);
  for (int64_t c = first; c < columns; c += step) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      weights[c + i] = 0;
      if constexpr (kCenters) biases[c + i] = 0;
    }
  }
  const int64_t begin = int64_t{blockIdx.x} * rows_of_slab;
  const int64_t end = begin + rows_of_slab < norm.rows ? begin + rows_of_slab : norm.rows;
  for (int64_t row = begin; row < end; ++row) {
    const T* dy = all_dy + row * columns;
    const T* x = all_x + row * columns;
    T* dx = all_dx + row * columns;
    const float mean = kCenters ? norm.mean[row] : 0;
    const float rstd = norm.rstd[row];
    float dys[kWidth];
    float xs[kWidth];
    float sum = 0;
    float sum_hat = 0;
    for (int64_t c = first; c < columns; c += step) {
      load_pack(dy + c, dys);
      load_pack(x + c, xs);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float g = dys[i] * norm.weight[c + i];
        if constexpr (kCenters) {
          sum += g;
          biases[c + i] += dys[i];
        }
        sum_hat += g * (xs[i] - mean);
        weights[c + i] += dys[i] * (xs[i] - mean) * rstd;
      }
    }
    const float2 sums = block_sums(sum, sum_hat);
    sum = sums.x * inverse;
    sum_hat = sums.y * inverse * rstd * rstd;
    for (int64_t c = first; c < columns; c += step) {
      float dxs[kWidth] = {};
      load_pack(dy + c, dys);
      load_pack(x + c, xs);
      if (all_residual != nullptr) load_pack(all_residual + row * columns + c, dxs);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        dxs[i] += rstd * (dys[i] * norm.weight[c + i] - sum - (xs[i] - mean) * sum_hat);
      }
      store_pack(dxs, dx + c);
    }
  }
  float* partial = norm.partial + int64_t{blockIdx.x} * columns;
  for (int64_t c = first; c < columns; c += step) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      partial[c + i] = weights[c + i];
      if constexpr (kCenters) partial[int64_t{gridDim.x} * columns + c + i] = biases[c + i];
    }
  }
}

/// Sums of one slab of rows: partial[slab][columns]. Blocks of 32 columns by kColumnLanes rows,
/// grid = (columns / 32, slabs).
template <class T>
__global__ void column_sums_kernel(const T* all_dy, float* partial, int64_t rows, int64_t columns,
                                   int64_t rows_of_slab) {
  const int64_t column = int64_t{blockIdx.x} * kWarpSize + threadIdx.x;
  const int64_t begin = int64_t{blockIdx.y} * rows_of_slab;
  const int64_t end = begin + rows_of_slab < rows ? begin + rows_of_slab : rows;
  float sum = 0;
  if (column < columns) {
    for (int64_t row = begin + threadIdx.y; row < end; row += kColumnLanes) {
      sum += load(all_dy + row * columns + column);
    }
  }
  sum = lane_sum(sum);
  if (threadIdx.y == 0 && column < columns) partial[int64_t{blockIdx.y} * columns + column] = sum;
}

/// to[c] += sum over the slabs. Blocks of 32 columns by kColumnLanes slabs, grid = columns / 32.
__global__ void add_slabs_kernel(const float* partial, float* to, int64_t slabs, int64_t columns) {
  const int64_t column = int64_t{blockIdx.x} * kWarpSize + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (int64_t slab = threadIdx.y; slab < slabs; slab += kColumnLanes) {
      sum += partial[slab * columns + column];
    }
  }
  sum = lane_sum(sum);
  if (threadIdx.y == 0 && column < columns) to[column] += sum;
}

void add_slabs(const float* partial, float* to, int64_t slabs, int64_t columns,
               cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(columns, kWarpSize));
  const dim3 threads(kWarpSize, kColumnLanes);
  add_slabs_kernel<<<blocks, threads, 0, stream>>>(partial, to, slabs, columns);
}

template <class T, int kWidth, bool kCenters>
void launch_forward(const NormForward& norm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  const dim3 threads(kWarpSize, kRowWarps);
  norm_forward_kernel<T, kWidth, kCenters>
      <<<blocks, threads, 0, stream>>>(norm, numbers_of<T>(norm.x), numbers_of<T>(norm.y));
}

template <class T, int kWidth, bool kCenters>
void launch_backward(const NormBackward& norm, cudaStream_t stream) {
  const int64_t slabs = norm_slab_count(norm.rows);
  // As many threads as a row keeps busy.
  const int64_t wanted = ceil_divide(ceil_divide(norm.columns, kWidth), kWarpSize);
  const auto threads =
      static_cast<unsigned>((wanted < kBlockWarps ? wanted : kBlockWarps)) * kWarpSize;
  const auto bytes = static_cast<size_t>((kCenters ? 2 : 1) * norm.columns) * sizeof(float);
  cudaFuncSetAttribute(norm_backward_kernel<T, kWidth, kCenters>,
                       cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  norm_backward_kernel<T, kWidth, kCenters>
      <<<static_cast<unsigned>(slabs), threads, bytes, stream>>>(
          norm, numbers_of<T>(norm.dy), numbers_of<T>(norm.x), numbers_of<T>(norm.residual),
          numbers_of<T>(norm.dx), ceil_divide(norm.rows, slabs));
  add_slabs(norm.partial, norm.dweight, slabs, norm.columns, stream);
  if constexpr (kCenters) {
    add_slabs(norm.partial + slabs * norm.columns, norm.dbias, slabs, norm.columns, stream);
  }
}

template <bool kCenters>
void forward(const NormForward& norm, cudaStream_t stream) {
  const bool is_wide =
      fits_packs(norm.x, norm.columns, kWide) && fits_packs(norm.y, norm.columns, kWide);
  if (is_float32(norm.x)) return launch_forward<float, 1, kCenters>(norm, stream);
  if (is_wide) return launch_forward<__nv_bfloat16, kWide, kCenters>(norm, stream);
  launch_forward<__nv_bfloat16, 1, kCenters>(norm, stream);
}

template <bool kCenters>
void backward(const NormBackward& norm, cudaStream_t stream) {
  const bool is_wide =
      fits_packs(norm.x, norm.columns, kWide) && fits_packs(norm.dy, norm.columns, kWide) &&
      fits_packs(norm.residual, norm.columns, kWide) && fits_packs(norm.dx, norm.columns, kWide);
  if (is_float32(norm.x)) return launch_backward<float, 1, kCenters>(norm, stream);
  if (is_wide) return launch_backward<__nv_bfloat16, kWide, kCenters>(norm, stream);
  launch_backward<__nv_bfloat16, 1, kCenters>(norm, stream);
}

}  // namespace

void norm_forward(const NormForward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  norm.mean != nullptr ? forward<true>(norm, stream) : forward<false>(norm, stream);
}

void norm_backward(const NormBackward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  norm.mean != nullptr ? backward<true>(norm, stream) : backward<false>(norm, stream);
}

void add_column_sums(ConstNumbers dy, float* db, float* partial, int64_t rows, int64_t columns,
                     cudaStream_t stream) {
  if (rows == 0) return;
  const int64_t slabs = slab_count(rows);
  const dim3 grid(static_cast<unsigned>(ceil_divide(columns, kWarpSize)),
                  static_cast<unsigned>(slabs));
  const dim3 threads(kWarpSize, kColumnLanes);
  if (is_float32(dy)) {
    column_sums_kernel<float><<<grid, threads, 0, stream>>>(numbers_of<float>(dy), partial, rows,
                                                            columns, slab_rows(rows));
  } else {
    column_sums_kernel<__nv_bfloat16><<<grid, threads, 0, stream>>>(
        numbers_of<__nv_bfloat16>(dy), partial, rows, columns, slab_rows(rows));
  }
  add_slabs(partial, db, slabs, columns, stream);
}

}  // namespace skein::gpu::kernels
