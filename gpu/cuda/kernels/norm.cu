#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/norm.hpp"
#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kRowWarps = 4;     // Rows of a block: one warp each.
constexpr int kColumnLanes = 8;  // Rows that a block of the column sums looks at together.
constexpr int kSumThreads = 256;
/// bfloat16 numbers that a lane takes at once where they are aligned.
constexpr int kWide = 4;

/// One warp per row, grid = ceil(rows / kRowWarps), no shared memory. Bound: DRAM.
template <class T, int kWidth, bool kAdds, bool kCenters>
__global__ void norm_forward_kernel(NormForward norm, const T* a, const T* b, T* all_x, T* all_y) {
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.y;
  if (row >= norm.rows) return;
  const int64_t columns = norm.columns;
  const int64_t first = int64_t{threadIdx.x} * kWidth;
  const float inverse = 1.0F / static_cast<float>(columns);
  T* x = all_x + row * columns;
  float values[kWidth];
  float sum = 0;
  float squares = 0;
  // A lane reads again only what it has written itself, so no barrier is needed.
  for (int64_t c = first; c < columns; c += kWarpSize * kWidth) {
    if constexpr (kAdds) {
      float others[kWidth];
      load_pack(a + row * columns + c, values);
      load_pack(b + row * columns + c, others);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[i] = values[i] + others[i];
      store_pack(values, x + c);
    }
    load_pack(x + c, values);  // As it is kept: rounded.
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

/// One warp per row, grid = ceil(rows / kRowWarps), no shared memory. Bound: DRAM.
template <class T, int kWidth, bool kCenters>
__global__ void norm_backward_input_kernel(NormBackward norm, const T* all_dy, const T* all_x,
                                           T* all_dx) {
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.y;
  if (row >= norm.rows) return;
  const int64_t columns = norm.columns;
  const int64_t first = int64_t{threadIdx.x} * kWidth;
  const float inverse = 1.0F / static_cast<float>(columns);
  const T* dy = all_dy + row * columns;
  const T* x = all_x + row * columns;
  T* dx = all_dx + row * columns;
  const float mean = kCenters ? norm.mean[row] : 0;
  const float rstd = norm.rstd[row];
  float dys[kWidth];
  float xs[kWidth];
  float sum = 0;
  float sum_hat = 0;
  for (int64_t c = first; c < columns; c += kWarpSize * kWidth) {
    load_pack(dy + c, dys);
    load_pack(x + c, xs);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float g = dys[i] * norm.weight[c + i];
      if constexpr (kCenters) sum += g;
      sum_hat += g * (xs[i] - mean);
    }
  }
  if constexpr (kCenters) sum = warp_sum(sum) * inverse;
  sum_hat = warp_sum(sum_hat) * inverse * rstd * rstd;
  for (int64_t c = first; c < columns; c += kWarpSize * kWidth) {
    float dxs[kWidth];
    load_pack(dy + c, dys);
    load_pack(x + c, xs);
    load_pack(dx + c, dxs);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      dxs[i] += rstd * (dys[i] * norm.weight[c + i] - sum - (xs[i] - mean) * sum_hat);
    }
    store_pack(dxs, dx + c);
  }
}

/// What is summed over the rows: dy for a bias, dy x_hat for the weight of a norm.
enum class Sums { kBias, kWeight, kBoth };

/// Sums of one slab of rows: partial[slab][columns] of the bias, and behind all of those, or alone,
/// the same of the weight. Blocks of 32 columns by kColumnLanes rows, grid = (columns / 32, slabs).
template <class T, Sums kSums>
__global__ void column_sums_kernel(NormBackward norm, const T* all_dy, const T* x,
                                   int64_t rows_of_slab) {
  const int64_t column = int64_t{blockIdx.x} * kWarpSize + threadIdx.x;
  const int64_t begin = int64_t{blockIdx.y} * rows_of_slab;
  const int64_t end = begin + rows_of_slab < norm.rows ? begin + rows_of_slab : norm.rows;
  float bias = 0;
  float weight = 0;
  if (column < norm.columns) {
    for (int64_t row = begin + threadIdx.y; row < end; row += kColumnLanes) {
      const float dy = load(all_dy + row * norm.columns + column);
      bias += dy;
      if constexpr (kSums != Sums::kBias) {
        const float mean = kSums == Sums::kBoth ? norm.mean[row] : 0;
        weight += dy * (load(x + row * norm.columns + column) - mean) * norm.rstd[row];
      }
    }
  }
  __shared__ float biases[kColumnLanes][kWarpSize];
  __shared__ float weights[kColumnLanes][kWarpSize];
  biases[threadIdx.y][threadIdx.x] = bias;
  weights[threadIdx.y][threadIdx.x] = weight;
  __syncthreads();
  if (threadIdx.y != 0 || column >= norm.columns) return;
  for (int lane = 1; lane < kColumnLanes; ++lane) {
    bias += biases[lane][threadIdx.x];
    weight += weights[lane][threadIdx.x];
  }
  const int64_t at = int64_t{blockIdx.y} * norm.columns + column;
  const int64_t behind = kSums == Sums::kBoth ? gridDim.y * norm.columns : 0;
  if constexpr (kSums != Sums::kWeight) norm.partial[at] = bias;
  if constexpr (kSums != Sums::kBias) norm.partial[behind + at] = weight;
}

/// to[c] += sum over the slabs, in their order. One thread per column.
__global__ void add_slabs_kernel(const float* partial, float* to, int64_t slabs, int64_t columns) {
  const int64_t column = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (int64_t slab = 0; slab < slabs; ++slab) sum += partial[slab * columns + column];
  to[column] += sum;
}

void add_slabs(const float* partial, float* to, int64_t slabs, int64_t columns,
               cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(columns, kSumThreads));
  add_slabs_kernel<<<blocks, kSumThreads, 0, stream>>>(partial, to, slabs, columns);
}

template <Sums kSums>
void column_sums(const NormBackward& norm, cudaStream_t stream) {
  using Bfloat16 = __nv_bfloat16;
  const int64_t slabs = slab_count(norm.rows);
  const int64_t each = slab_rows(norm.rows);
  const dim3 grid(static_cast<unsigned>(ceil_divide(norm.columns, kWarpSize)),
                  static_cast<unsigned>(slabs));
  const dim3 threads(kWarpSize, kColumnLanes);
  if (is_float32(norm.dy)) {
    column_sums_kernel<float, kSums><<<grid, threads, 0, stream>>>(norm, numbers_of<float>(norm.dy),
                                                                   numbers_of<float>(norm.x), each);
  } else {
    column_sums_kernel<Bfloat16, kSums><<<grid, threads, 0, stream>>>(
        norm, numbers_of<Bfloat16>(norm.dy), numbers_of<Bfloat16>(norm.x), each);
  }
  const float* partial = norm.partial;
  if (kSums != Sums::kWeight) {
    add_slabs(partial, norm.dbias, slabs, norm.columns, stream);
    partial += slabs * norm.columns;
  }
  if (kSums != Sums::kBias) add_slabs(partial, norm.dweight, slabs, norm.columns, stream);
}

template <class T, int kWidth, bool kCenters>
void launch_forward(const NormForward& norm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  const dim3 threads(kWarpSize, kRowWarps);
  const T* a = numbers_of<T>(norm.a);
  const T* b = numbers_of<T>(norm.b);
  T* x = numbers_of<T>(norm.x);
  T* y = numbers_of<T>(norm.y);
  if (a != nullptr) {
    norm_forward_kernel<T, kWidth, true, kCenters>
        <<<blocks, threads, 0, stream>>>(norm, a, b, x, y);
  } else {
    norm_forward_kernel<T, kWidth, false, kCenters>
        <<<blocks, threads, 0, stream>>>(norm, a, b, x, y);
  }
}

template <class T, int kWidth, bool kCenters>
void launch_backward(const NormBackward& norm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  const dim3 threads(kWarpSize, kRowWarps);
  norm_backward_input_kernel<T, kWidth, kCenters><<<blocks, threads, 0, stream>>>(
      norm, numbers_of<T>(norm.dy), numbers_of<T>(norm.x), numbers_of<T>(norm.dx));
}

template <bool kCenters>
void forward(const NormForward& norm, cudaStream_t stream) {
  const bool is_wide =
      fits_packs(norm.x, norm.columns, kWide) && fits_packs(norm.y, norm.columns, kWide) &&
      fits_packs(norm.a, norm.columns, kWide) && fits_packs(norm.b, norm.columns, kWide);
  if (is_float32(norm.x)) return launch_forward<float, 1, kCenters>(norm, stream);
  if (is_wide) return launch_forward<__nv_bfloat16, kWide, kCenters>(norm, stream);
  launch_forward<__nv_bfloat16, 1, kCenters>(norm, stream);
}

template <bool kCenters>
void backward(const NormBackward& norm, cudaStream_t stream) {
  const bool is_wide = fits_packs(norm.x, norm.columns, kWide) &&
                       fits_packs(norm.dy, norm.columns, kWide) &&
                       fits_packs(norm.dx, norm.columns, kWide);
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
  if (norm.mean != nullptr) {
    backward<true>(norm, stream);
    column_sums<Sums::kBoth>(norm, stream);
  } else {
    backward<false>(norm, stream);
    column_sums<Sums::kWeight>(norm, stream);
  }
}

void add_column_sums(ConstNumbers dy, float* db, float* partial, int64_t rows, int64_t columns,
                     cudaStream_t stream) {
  if (rows == 0) return;
  NormBackward norm;
  norm.dy = dy;
  norm.dbias = db;
  norm.partial = partial;
  norm.rows = rows;
  norm.columns = columns;
  column_sums<Sums::kBias>(norm, stream);
}

}  // namespace skein::gpu::kernels
