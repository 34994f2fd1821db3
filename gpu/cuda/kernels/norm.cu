#include "gpu/cuda/kernels/norm.hpp"
#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kRowWarps = 4;     // Rows of a block: one warp each.
constexpr int kColumnLanes = 8;  // Rows that a block of the column sums looks at together.
constexpr int kSumThreads = 256;

/// One warp per row, grid = ceil(rows / kRowWarps), no shared memory. Bound: DRAM.
template <bool kAdds, bool kCenters>
__global__ void norm_forward_kernel(NormForward norm) {
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.y;
  if (row >= norm.rows) return;
  const int64_t columns = norm.columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  float* x = norm.x + row * columns;
  float sum = 0;
  float squares = 0;
  // A lane reads again only what it has written itself, so no barrier is needed.
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    if constexpr (kAdds) x[c] = norm.a[row * columns + c] + norm.b[row * columns + c];
    if constexpr (kCenters) {
      sum += x[c];
    } else {
      squares += x[c] * x[c];
    }
  }
  float mean = 0;
  if constexpr (kCenters) {
    mean = warp_sum(sum) * inverse;
    for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
      const float centered = x[c] - mean;
      squares += centered * centered;
    }
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) * inverse + norm.epsilon);
  float* y = norm.y + row * columns;
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    if constexpr (kCenters) {
      y[c] = (x[c] - mean) * rstd * norm.weight[c] + norm.bias[c];
    } else {
      y[c] = x[c] * rstd * norm.weight[c];
    }
  }
  if (threadIdx.x != 0) return;
  if constexpr (kCenters) norm.mean[row] = mean;
  norm.rstd[row] = rstd;
}

/// One warp per row, grid = ceil(rows / kRowWarps), no shared memory. Bound: DRAM.
template <bool kCenters>
__global__ void norm_backward_input_kernel(NormBackward norm) {
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.y;
  if (row >= norm.rows) return;
  const int64_t columns = norm.columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  const float* dy = norm.dy + row * columns;
  const float* x = norm.x + row * columns;
  float* dx = norm.dx + row * columns;
  const float mean = kCenters ? norm.mean[row] : 0;
  const float rstd = norm.rstd[row];
  float sum = 0;
  float sum_hat = 0;
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    const float g = dy[c] * norm.weight[c];
    if constexpr (kCenters) sum += g;
    sum_hat += g * (x[c] - mean);
  }
  if constexpr (kCenters) sum = warp_sum(sum) * inverse;
  sum_hat = warp_sum(sum_hat) * inverse * rstd * rstd;
  for (int64_t c = threadIdx.x; c < columns; c += kWarpSize) {
    dx[c] += rstd * (dy[c] * norm.weight[c] - sum - (x[c] - mean) * sum_hat);
  }
}

/// What is summed over the rows: dy for a bias, dy x_hat for the weight of a norm.
enum class Sums { kBias, kWeight, kBoth };

/// Sums of one slab of rows: partial[slab][columns] of the bias, and behind all of those, or alone,
/// the same of the weight. Blocks of 32 columns by kColumnLanes rows, grid = (columns / 32, slabs).
template <Sums kSums>
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
      if constexpr (kSums != Sums::kBias) {
        const float mean = kSums == Sums::kBoth ? norm.mean[row] : 0;
        weight += dy * (norm.x[row * norm.columns + column] - mean) * norm.rstd[row];
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
  const int64_t slabs = slab_count(norm.rows);
  const dim3 grid(static_cast<unsigned>(ceil_divide(norm.columns, kWarpSize)),
                  static_cast<unsigned>(slabs));
  column_sums_kernel<kSums>
      <<<grid, dim3(kWarpSize, kColumnLanes), 0, stream>>>(norm, slab_rows(norm.rows));
  const float* partial = norm.partial;
  if (kSums != Sums::kWeight) {
    add_slabs(partial, norm.dbias, slabs, norm.columns, stream);
    partial += slabs * norm.columns;
  }
  if (kSums != Sums::kBias) add_slabs(partial, norm.dweight, slabs, norm.columns, stream);
}

template <bool kAdds, bool kCenters>
void launch_forward(const NormForward& norm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  norm_forward_kernel<kAdds, kCenters><<<blocks, dim3(kWarpSize, kRowWarps), 0, stream>>>(norm);
}

template <bool kCenters>
void launch_backward(const NormBackward& norm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  norm_backward_input_kernel<kCenters><<<blocks, dim3(kWarpSize, kRowWarps), 0, stream>>>(norm);
}

}  // namespace

void norm_forward(const NormForward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  const bool adds = norm.a != nullptr;
  if (norm.mean != nullptr) {
    adds ? launch_forward<true, true>(norm, stream) : launch_forward<false, true>(norm, stream);
  } else {
    adds ? launch_forward<true, false>(norm, stream) : launch_forward<false, false>(norm, stream);
  }
}

void norm_backward(const NormBackward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  if (norm.mean != nullptr) {
    launch_backward<true>(norm, stream);
    column_sums<Sums::kBoth>(norm, stream);
  } else {
    launch_backward<false>(norm, stream);
    column_sums<Sums::kWeight>(norm, stream);
  }
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
  column_sums<Sums::kBias>(norm, stream);
}

}  // namespace skein::gpu::kernels
