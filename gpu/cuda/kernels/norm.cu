#include "gpu/cuda/kernels/norm.hpp"
#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kRowWarps = 4;     // Rows of a block: one warp each.
constexpr int kColumnLanes = 8;  // Rows that a block of the column sums looks at together.
constexpr int kSumThreads = 256;

/// One warp per row, grid = ceil(rows / kRowWarps), no shared memory. Bound: DRAM.
template <bool kAdds>
__global__ void norm_forward_kernel(NormForward norm) {
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.y;
  if (row >= norm.rows) return;
  const int64_t columns = norm.columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  float* x = norm.x + row * columns;
  float sum = 0;
  // A lane reads again only what it has written itself, so no barrier is needed.
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    if constexpr (kAdds) x[c] = norm.a[row * columns + c] + norm.b[row * columns + c];
    sum += x[c];
  }
  const float mean = warp_sum(sum) * inverse;
  float squares = 0;
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    const float centered = x[c] - mean;
    squares += centered * centered;
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) * inverse + norm.epsilon);
  float* y = norm.y + row * columns;
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    y[c] = (x[c] - mean) * rstd * norm.weight[c] + norm.bias[c];
  }
  if (threadIdx.x == 0) {
    norm.mean[row] = mean;
    norm.rstd[row] = rstd;
  }
}

/// One warp per row, grid = ceil(rows / kRowWarps), no shared memory. Bound: DRAM.
__global__ void norm_backward_input_kernel(NormBackward norm) {
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.y;
  if (row >= norm.rows) return;
  const int64_t columns = norm.columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  const float* dy = norm.dy + row * columns;
  const float* x = norm.x + row * columns;
  float* dx = norm.dx + row * columns;
  const float mean = norm.mean[row];
  const float rstd = norm.rstd[row];
  float sum = 0;
  float sum_hat = 0;
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    const float g = dy[c] * norm.weight[c];
    sum += g;
    sum_hat += g * (x[c] - mean);
  }
  sum = warp_sum(sum) * inverse;
  sum_hat = warp_sum(sum_hat) * inverse * rstd * rstd;
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    dx[c] += rstd * (dy[c] * norm.weight[c] - sum - (x[c] - mean) * sum_hat);
  }
}

/// Sums of one slab of rows: partial[slab][columns] of dy, and behind all of those the same of
/// dy x_hat if kWithWeight. Blocks of 32 columns by kColumnLanes rows, grid = (columns / 32,
/// slabs).
template <bool kWithWeight>
__global__ void column_sums_kernel(NormBackward norm, int64_t rows_of_slab) {
  const int64_t column = int64_t{blockIdx.x} * kWarpSize + threadIdx.x;
  const int64_t begin = int64_t{blockIdx.y} * rows_of_slab;
  const int64_t end = begin + rows_of_slab < norm.rows ? begin + rows_of_slab : norm.rows;
  float bias = 0;
  float weight = 0;
  if (column < norm.columns) {
    for (int64_t row = begin + threadIdx.y; row < end; row += kColumnLanes) {
      const float dy = norm.dy[row * norm.columns + column];
      bias += dy;
      if constexpr (kWithWeight) {
        weight += dy * (norm.x[row * norm.columns + column] - norm.mean[row]) * norm.rstd[row];
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
  norm.partial[at] = bias;
  if constexpr (kWithWeight) norm.partial[gridDim.y * norm.columns + at] = weight;
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

template <bool kWithWeight>
void column_sums(const NormBackward& norm, cudaStream_t stream) {
  const int64_t slabs = slab_count(norm.rows);
  const dim3 grid(static_cast<unsigned>(ceil_divide(norm.columns, kWarpSize)),
                  static_cast<unsigned>(slabs));
  column_sums_kernel<kWithWeight>
      <<<grid, dim3(kWarpSize, kColumnLanes), 0, stream>>>(norm, slab_rows(norm.rows));
  add_slabs(norm.partial, norm.dbias, slabs, norm.columns, stream);
  if (kWithWeight) {
    add_slabs(norm.partial + slabs * norm.columns, norm.dweight, slabs, norm.columns, stream);
  }
}

}  // namespace

void norm_forward(const NormForward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  const dim3 threads(kWarpSize, kRowWarps);
  if (norm.a != nullptr) {
    norm_forward_kernel<true><<<blocks, threads, 0, stream>>>(norm);
  } else {
    norm_forward_kernel<false><<<blocks, threads, 0, stream>>>(norm);
  }
}

void norm_backward(const NormBackward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  norm_backward_input_kernel<<<blocks, dim3(kWarpSize, kRowWarps), 0, stream>>>(norm);
  column_sums<true>(norm, stream);
}

void add_column_sums(const float* dy, float* db, float* partial, int64_t rows, int64_t columns,
                     cudaStream_t stream) {
  if (rows == 0) return;
  NormBackward norm;
  norm.dy = dy;
  norm.dbias = db;
  norm.partial = partial;
  norm.rows = rows;
  norm.columns = columns;
  column_sums<false>(norm, stream);
}

}  // namespace skein::gpu::kernels
