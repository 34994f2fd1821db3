#include "gpu/cuda/kernels/column_sums.hpp"
#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/norm.hpp"
#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kRowWarps = 4;    // Rows of a block: one warp each.
constexpr int kBlockWarps = 8;  // At most, of a backward.
constexpr int kBlockThreads = kBlockWarps * kWarpSize;
/// Packs of a row that a lane has in registers, at most: in a forward, whose rows are a warp's, and
/// in a backward, which also keeps sums of its columns, and would spill three.
constexpr int kForwardPacksMax = 8;
constexpr int kBackwardPacks = 2;

/// The longest row that so many warps hold.
template <class T>
constexpr int64_t held_columns(int warps, int packs) {
  return int64_t{warps} * packs * kWarpSize * kWide<T>;
}

/// One warp per row, which it has in registers; grid = ceil(rows / kRowWarps), no shared memory.
/// columns <= 32 kWidth kPacks. Bound: DRAM.
template <class T, int kWidth, int kPacks, bool kCenters>
__global__ void norm_forward_held_kernel(NormForward norm, const T* all_x, T* all_y) {
  const int64_t row = int64_t{blockIdx.x} * kRowWarps + threadIdx.y;
  if (row >= norm.rows) return;
  const int64_t columns = norm.columns;
  const int64_t first = int64_t{threadIdx.x} * kWidth;
  const float inverse = 1.0F / static_cast<float>(columns);
  const T* x = all_x + row * columns;
  float values[kPacks][kWidth] = {};
  float sum = 0;
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t c = first + int64_t{p} * kWarpSize * kWidth;
    if (c < columns) load_pack(x + c, values[p]);
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (kCenters) {
        sum += values[p][i];
      } else {
        squares += values[p][i] * values[p][i];
      }
    }
  }
  float mean = 0;
  if constexpr (kCenters) {
    mean = warp_sum(sum) * inverse;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (first + int64_t{p} * kWarpSize * kWidth >= columns) continue;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        values[p][i] -= mean;
        squares += values[p][i] * values[p][i];
      }
    }
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) * inverse + norm.epsilon);
  T* y = all_y + row * columns;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t c = first + int64_t{p} * kWarpSize * kWidth;
    if (c >= columns) continue;
    float weight[kWidth];
    float bias[kWidth] = {};
    load_pack(norm.weight + c, weight);
    if constexpr (kCenters) load_pack(norm.bias + c, bias);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[p][i] = values[p][i] * rstd * weight[i] + bias[i];
    store_pack(values[p], y + c);
  }
  if (threadIdx.x != 0) return;
  if constexpr (kCenters) norm.mean[row] = mean;
  norm.rstd[row] = rstd;
}

/// One warp per row of any length, which it reads again instead of keeping it; grid and bound as
/// above.
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

/// Two sums over the kWarps warps of one of a block's rows; all their threads get both. Every
/// thread must call.
template <int kWarps>
__device__ inline float2 row_sums(float first, float second, int row) {
  first = warp_sum(first);
  second = warp_sum(second);
  if constexpr (kWarps == 1) return make_float2(first, second);
  __shared__ float2 sums[kBlockWarps];
  __syncthreads();  // The memory may still be read from an earlier call.
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = make_float2(first, second);
  __syncthreads();
  float2 all = make_float2(0, 0);
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    all.x += sums[row * kWarps + warp].x;
    all.y += sums[row * kWarps + warp].y;
  }
  return all;
}

/// What a lane has of a row: kPacks packs, a step apart. Those behind the row's end are zeros.
template <class T, int kWidth, int kPacks, int kStep>
struct Held {
  Pack<T, kWidth> packs[kPacks];

  __device__ void read(const T* at, int count) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      packs[p] = {};
      if (p * kStep < count) packs[p] = *reinterpret_cast<const Pack<T, kWidth>*>(at + p * kStep);
    }
  }
};

/// One block of kBlockThreads per slab of rows; grid = slabs. kWarps of them have a row together,
/// at most kPacks packs in each lane's registers, and its columns' sums, too; others have the next
/// rows. The next rows are read while those at hand are worked on. Shared memory: a float for each
/// column of dweight, and behind those of dbias. Bound: DRAM.
template <class T, int kWarps, int kPacks, bool kCenters>
__global__ void __launch_bounds__(kBlockThreads, 2)
    norm_backward_held_kernel(NormBackward norm, const T* all_dy, const T* all_x,
                              const T* all_residual, T* all_dx, int64_t rows_of_slab) {
  extern __shared__ __align__(16) unsigned char memory[];
  constexpr int kWidth = kWide<T>;
  constexpr int kLanes = kWarps * kWarpSize;
  constexpr int kStep = kLanes * kWidth;
  constexpr int kRowsAtOnce = kBlockThreads / kLanes;
  using Row = Held<T, kWidth, kPacks, kStep>;
  const auto columns = static_cast<int>(norm.columns);
  const int own_row = static_cast<int>(threadIdx.x) / kLanes;
  const int first = static_cast<int>(threadIdx.x) % kLanes * kWidth;
  const int count = columns - first;  // Pack p is within the row if p kStep < count.
  const float inverse = 1.0F / static_cast<float>(columns);
  const float* own_weight = norm.weight + first;
  float weights[kPacks][kWidth] = {};
  float biases[kPacks][kWidth] = {};
  const int64_t begin = int64_t{blockIdx.x} * rows_of_slab;
  const int64_t end = begin + rows_of_slab < norm.rows ? begin + rows_of_slab : norm.rows;
  int64_t row = begin + own_row;
  int64_t at = row * columns + first;
  Row next_dy = {};
  Row next_x = {};
  if (row < end) {
    next_dy.read(all_dy + at, count);
    next_x.read(all_x + at, count);
  }
  for (int64_t rows_begin = begin; rows_begin < end; rows_begin += kRowsAtOnce) {
    const bool is_row = row < end;
    const Row dys = next_dy;
    const Row xs = next_x;
    Row residuals = {};
    float mean = 0;
    float rstd = 0;
    if (is_row) {
      if (all_residual != nullptr) residuals.read(all_residual + at, count);
      if constexpr (kCenters) mean = norm.mean[row];
      rstd = norm.rstd[row];
    }
    if (row + kRowsAtOnce < end) {
      next_dy.read(all_dy + at + int64_t{kRowsAtOnce} * columns, count);
      next_x.read(all_x + at + int64_t{kRowsAtOnce} * columns, count);
    }
    float sum = 0;
    float sum_hat = 0;
    if (is_row) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (p * kStep >= count) continue;
        float weight[kWidth];
        load_pack(own_weight + p * kStep, weight);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const float dy = load(&dys.packs[p].numbers[i]);
          const float centered = load(&xs.packs[p].numbers[i]) - mean;
          const float g = dy * weight[i];
          if constexpr (kCenters) {
            sum += g;
            biases[p][i] += dy;
          }
          sum_hat += g * centered;
          weights[p][i] += dy * centered * rstd;
        }
      }
    }
    const float2 sums = row_sums<kWarps>(sum, sum_hat, own_row);
    sum = sums.x * inverse;
    sum_hat = sums.y * inverse * rstd * rstd;
    if (is_row) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (p * kStep >= count) continue;
        float weight[kWidth];
        float dxs[kWidth];
        load_pack(own_weight + p * kStep, weight);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const float centered = load(&xs.packs[p].numbers[i]) - mean;
          dxs[i] = load(&residuals.packs[p].numbers[i]) +
                   rstd * (load(&dys.packs[p].numbers[i]) * weight[i] - sum - centered * sum_hat);
        }
        store_pack(dxs, all_dx + at + p * kStep);
      }
    }
    row += kRowsAtOnce;
    at += int64_t{kRowsAtOnce} * columns;
  }
  // One after the other, so that the sums have one order.
  float* all_weights = reinterpret_cast<float*>(memory) + first;
  float* all_biases = all_weights + columns;
  for (int turn = 0; turn < kRowsAtOnce; ++turn) {
    if (turn == own_row) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (p * kStep >= count) continue;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const int c = p * kStep + i;
          all_weights[c] = turn == 0 ? weights[p][i] : all_weights[c] + weights[p][i];
          if constexpr (kCenters) {
            all_biases[c] = turn == 0 ? biases[p][i] : all_biases[c] + biases[p][i];
          }
        }
      }
    }
    __syncthreads();
  }
  const float* done = reinterpret_cast<const float*>(memory);
  float* partial = norm.partial + int64_t{blockIdx.x} * columns;
  for (int c = static_cast<int>(threadIdx.x); c < columns; c += kBlockThreads) {
    partial[c] = done[c];
    if constexpr (kCenters) partial[int64_t{gridDim.x} * columns + c] = done[columns + c];
  }
}

/// The same for rows of any length and alignment, one after the other. Shared memory as above; each
/// column of it belongs to one thread.
template <class T, bool kCenters>
__global__ void norm_backward_kernel(NormBackward norm, const T* all_dy, const T* all_x,
                                     const T* all_residual, T* all_dx, int64_t rows_of_slab) {
  extern __shared__ __align__(16) unsigned char memory[];
  float* weights = reinterpret_cast<float*>(memory);
  const int64_t columns = norm.columns;
  float* biases = weights + columns;
  const int64_t first = threadIdx.x;
  const int64_t step = blockDim.x;
  const float inverse = 1.0F / static_cast<float>(columns);
  for (int64_t c = first; c < columns; c += step) {
    weights[c] = 0;
    if constexpr (kCenters) biases[c] = 0;
  }
  const int64_t begin = int64_t{blockIdx.x} * rows_of_slab;
  const int64_t end = begin + rows_of_slab < norm.rows ? begin + rows_of_slab : norm.rows;
  for (int64_t row = begin; row < end; ++row) {
    const T* dy = all_dy + row * columns;
    const T* x = all_x + row * columns;
    T* dx = all_dx + row * columns;
    const float mean = kCenters ? norm.mean[row] : 0;
    const float rstd = norm.rstd[row];
    float sum = 0;
    float sum_hat = 0;
    for (int64_t c = first; c < columns; c += step) {
      const float own_dy = load(dy + c);
      const float centered = load(x + c) - mean;
      const float g = own_dy * norm.weight[c];
      if constexpr (kCenters) {
        sum += g;
        biases[c] += own_dy;
      }
      sum_hat += g * centered;
      weights[c] += own_dy * centered * rstd;
    }
    const float2 sums = block_sums(sum, sum_hat);
    sum = sums.x * inverse;
    sum_hat = sums.y * inverse * rstd * rstd;
    for (int64_t c = first; c < columns; c += step) {
      const float residual = all_residual != nullptr ? load(all_residual + row * columns + c) : 0;
      const float centered = load(x + c) - mean;
      store(residual + rstd * (load(dy + c) * norm.weight[c] - sum - centered * sum_hat), dx + c);
    }
  }
  float* partial = norm.partial + int64_t{blockIdx.x} * columns;
  for (int64_t c = first; c < columns; c += step) {
    partial[c] = weights[c];
    if constexpr (kCenters) partial[int64_t{gridDim.x} * columns + c] = biases[c];
  }
}

template <class T, int kWidth, bool kCenters>
void launch_forward(const NormForward& norm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  const dim3 threads(kWarpSize, kRowWarps);
  norm_forward_kernel<T, kWidth, kCenters>
      <<<blocks, threads, 0, stream>>>(norm, numbers_of<T>(norm.x), numbers_of<T>(norm.y));
}

/// With as many packs as a row needs, or one more.
template <class T, int kPacks, bool kCenters>
void launch_forward_held(const NormForward& norm, int64_t packs, cudaStream_t stream) {
  if constexpr (kPacks > 2) {
    constexpr int kFewer = kPacks > 4 ? kPacks - 2 : kPacks - 1;
    if (packs <= kFewer) return launch_forward_held<T, kFewer, kCenters>(norm, packs, stream);
  }
  constexpr int kWidth = kWide<T>;
  const auto blocks = static_cast<unsigned>(ceil_divide(norm.rows, kRowWarps));
  const dim3 threads(kWarpSize, kRowWarps);
  norm_forward_held_kernel<T, kWidth, kPacks, kCenters>
      <<<blocks, threads, 0, stream>>>(norm, numbers_of<T>(norm.x), numbers_of<T>(norm.y));
}

template <class T, bool kCenters>
void forward(const NormForward& norm, cudaStream_t stream) {
  constexpr int kWidth = kWide<T>;
  if (!fits_packs(norm.x, norm.columns, kWidth) || !fits_packs(norm.y, norm.columns, kWidth) ||
      !is_aligned(norm.weight) || !is_aligned(norm.bias)) {
    return launch_forward<T, 1, kCenters>(norm, stream);
  }
  const int64_t packs = ceil_divide(norm.columns, kWarpSize * kWidth);
  if (packs > kForwardPacksMax) return launch_forward<T, kWidth, kCenters>(norm, stream);
  launch_forward_held<T, kForwardPacksMax, kCenters>(norm, packs, stream);
}

template <bool kCenters>
void add_sums(const NormBackward& norm, int64_t slabs, cudaStream_t stream) {
  add_slabs({norm.partial, norm.dweight, kCenters ? norm.dbias : nullptr, slabs, norm.columns},
            stream);
}

template <bool kCenters>
size_t backward_bytes(const NormBackward& norm) {
  return static_cast<size_t>((kCenters ? 2 : 1) * norm.columns) * sizeof(float);
}

template <class T, bool kCenters>
void launch_backward(const NormBackward& norm, cudaStream_t stream) {
  const int64_t slabs = norm_slab_count(norm.rows);
  // As many threads as a row keeps busy.
  const int64_t wanted = ceil_divide(norm.columns, kWarpSize);
  const auto threads =
      static_cast<unsigned>((wanted < kBlockWarps ? wanted : kBlockWarps)) * kWarpSize;
  const size_t bytes = backward_bytes<kCenters>(norm);
  cudaFuncSetAttribute(norm_backward_kernel<T, kCenters>,
                       cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  norm_backward_kernel<T, kCenters><<<static_cast<unsigned>(slabs), threads, bytes, stream>>>(
      norm, numbers_of<T>(norm.dy), numbers_of<T>(norm.x), numbers_of<T>(norm.residual),
      numbers_of<T>(norm.dx), ceil_divide(norm.rows, slabs));
  add_sums<kCenters>(norm, slabs, stream);
}

/// With the fewest warps that hold a row.
template <class T, int kWarps, int kPacks, bool kCenters>
void launch_backward_held(const NormBackward& norm, cudaStream_t stream) {
  if constexpr (kPacks == kBackwardPacks && kWarps < kBlockWarps) {
    if (norm.columns > held_columns<T>(kWarps, kPacks)) {
      return launch_backward_held<T, 2 * kWarps, kPacks, kCenters>(norm, stream);
    }
  }
  const int64_t slabs = norm_slab_count(norm.rows);
  const size_t bytes = backward_bytes<kCenters>(norm);
  cudaFuncSetAttribute(norm_backward_held_kernel<T, kWarps, kPacks, kCenters>,
                       cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  norm_backward_held_kernel<T, kWarps, kPacks, kCenters>
      <<<static_cast<unsigned>(slabs), kBlockThreads, bytes, stream>>>(
          norm, numbers_of<T>(norm.dy), numbers_of<T>(norm.x), numbers_of<T>(norm.residual),
          numbers_of<T>(norm.dx), ceil_divide(norm.rows, slabs));
  add_sums<kCenters>(norm, slabs, stream);
}

template <class T, bool kCenters>
void backward(const NormBackward& norm, cudaStream_t stream) {
  constexpr int kWidth = kWide<T>;
  const bool is_held =
      norm.columns <= held_columns<T>(kBlockWarps, kBackwardPacks) && is_aligned(norm.weight) &&
      fits_packs(norm.x, norm.columns, kWidth) && fits_packs(norm.dy, norm.columns, kWidth) &&
      fits_packs(norm.residual, norm.columns, kWidth) && fits_packs(norm.dx, norm.columns, kWidth);
  if (!is_held) return launch_backward<T, kCenters>(norm, stream);
  if (norm.columns <= held_columns<T>(1, 1)) {
    return launch_backward_held<T, 1, 1, kCenters>(norm, stream);
  }
  launch_backward_held<T, 1, kBackwardPacks, kCenters>(norm, stream);
}

}  // namespace

void norm_forward(const NormForward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  const bool centers = norm.mean != nullptr;
  if (is_float32(norm.x)) {
    centers ? forward<float, true>(norm, stream) : forward<float, false>(norm, stream);
  } else {
    centers ? forward<__nv_bfloat16, true>(norm, stream)
            : forward<__nv_bfloat16, false>(norm, stream);
  }
}

void norm_backward(const NormBackward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  const bool centers = norm.mean != nullptr;
  if (is_float32(norm.x)) {
    centers ? backward<float, true>(norm, stream) : backward<float, false>(norm, stream);
  } else {
    centers ? backward<__nv_bfloat16, true>(norm, stream)
            : backward<__nv_bfloat16, false>(norm, stream);
  }
}

}  // namespace skein::gpu::kernels
