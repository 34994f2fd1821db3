#include <cmath>

#include "gpu/cuda/kernels/attention.hpp"
#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kRows = 8;  // Rows of a block, one warp each.
constexpr int kThreads = kRows * kWarpSize;
constexpr int kTile = kWarpSize;  // Rows of the other side in shared memory: one for each lane.

/// Rows of one head in shared memory, a float apart, so that lanes with a row each use all banks.
template <int kSize>
using Rows = float (*)[kSize + 1];

/// Shared memory of a block that has `own` matrices of kRows rows and two of kTile: at most 82 kB.
template <int kParts>
constexpr int shared_bytes(int own) {
  return (own * kRows + 2 * kTile) * (kParts * kWarpSize + 1) * static_cast<int>(sizeof(float));
}

/// Rows [begin, begin + kCount) of one head's matrix, zeros past its end and past the head's size.
template <int kSize, int kCount, class T>
__device__ void load_rows(const T* from, int64_t stride, int64_t begin, int64_t seq_len,
                          int64_t size, float (*to)[kSize + 1]) {
  for (int i = threadIdx.y * kWarpSize + threadIdx.x; i < kCount * kSize; i += kThreads) {
    const int row = i / kSize;
    const int column = i % kSize;
    const bool is_there = begin + row < seq_len && column < size;
    to[row][column] = is_there ? load(from + (begin + row) * stride + column) : 0.0F;
  }
}

template <int kSize>
__device__ float dot(const float* a, const float* b) {
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < kSize; ++i) sum += a[i] * b[i];
  return sum;
}

/// sums[p] += sum over the lanes of their `factor` times their row of `rows`.
template <int kParts>
__device__ void add_scaled_rows(float factor, const float (*rows)[kParts * kWarpSize + 1],
                                float* sums) {
  for (int lane = 0; lane < kTile; ++lane) {
    const float own = __shfl_sync(kAllLanes, factor, lane);
#pragma unroll
    for (int p = 0; p < kParts; ++p) sums[p] += own * rows[lane][p * kWarpSize + threadIdx.x];
  }
}

template <int kParts, class T>
__device__ void store_row(const float* sums, float factor, int64_t size, T* to) {
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    const int column = p * kWarpSize + static_cast<int>(threadIdx.x);
    if (column < size) store(sums[p] * factor, to + column);
  }
}

/// grid = (ceil(T / kRows), B H). A warp has a query row, its lanes a key each.
template <class T, int kParts>
__global__ void forward_kernel(AttentionForward call, const T* qkv, T* out) {
  constexpr int kSize = kParts * kWarpSize;
  extern __shared__ __align__(16) unsigned char memory[];
  const auto queries = reinterpret_cast<Rows<kSize>>(memory);
  const auto keys = queries + kRows;
  const auto values = keys + kTile;
  const AttentionShape s = call.shape;
  const int64_t size = s.size;
  const HeadOffsets at = head_offsets(s, blockIdx.y);
  const float scale = 1.0F / sqrtf(static_cast<float>(size));
  const int64_t begin = int64_t{blockIdx.x} * kRows;
  const int64_t row = begin + threadIdx.y;
  load_rows<kSize, kRows>(qkv + at.q, at.qkv_stride, begin, s.seq_len, size, queries);
  float sums[kParts] = {};
  float highest = -INFINITY;
  float total = 0;
  for (int64_t tile = 0; tile < begin + kRows && tile < s.seq_len; tile += kTile) {
    __syncthreads();
    load_rows<kSize, kTile>(qkv + at.k, at.qkv_stride, tile, s.seq_len, size, keys);
    load_rows<kSize, kTile>(qkv + at.v, at.qkv_stride, tile, s.seq_len, size, values);
    __syncthreads();
    const bool is_seen = tile + threadIdx.x <= row;
    const float score =
        is_seen ? dot<kSize>(queries[threadIdx.y], keys[threadIdx.x]) * scale : -INFINITY;
    const float higher = fmaxf(highest, warp_max(score));  // Key 0 is seen, so it is finite.
    const float probability = expf(score - higher);
    const float shrink = expf(highest - higher);
    total = total * shrink + warp_sum(probability);
#pragma unroll
    for (int p = 0; p < kParts; ++p) sums[p] *= shrink;
    add_scaled_rows<kParts>(probability, values, sums);
    highest = higher;
  }
  if (row >= s.seq_len) return;
  store_row<kParts>(sums, 1.0F / total, size, out + at.out + row * at.out_stride);
  if (threadIdx.x == 0) {
    call.log_sum_exp[int64_t{blockIdx.y} * s.seq_len + row] = highest + logf(total);
  }
}

/// grid = (ceil(T / kRows), B H). A warp has a query row, its lanes a key each.
template <class T, int kParts>
__global__ void backward_queries_kernel(AttentionBackward call, const T* qkv, const T* dout,
                                        T* dqkv) {
  constexpr int kSize = kParts * kWarpSize;
  extern __shared__ __align__(16) unsigned char memory[];
  const auto queries = reinterpret_cast<Rows<kSize>>(memory);
  const auto douts = queries + kRows;
  const auto keys = douts + kRows;
  const auto values = keys + kTile;
  const AttentionShape s = call.shape;
  const int64_t size = s.size;
  const HeadOffsets at = head_offsets(s, blockIdx.y);
  const float scale = 1.0F / sqrtf(static_cast<float>(size));
  const int64_t begin = int64_t{blockIdx.x} * kRows;
  const int64_t row = begin + threadIdx.y;
  const int64_t statistics = int64_t{blockIdx.y} * s.seq_len + row;
  load_rows<kSize, kRows>(qkv + at.q, at.qkv_stride, begin, s.seq_len, size, queries);
  load_rows<kSize, kRows>(dout + at.out, at.out_stride, begin, s.seq_len, size, douts);
  const float log_sum_exp = row < s.seq_len ? call.log_sum_exp[statistics] : 0.0F;
  const float delta = row < s.seq_len ? call.delta[statistics] : 0.0F;
  float sums[kParts] = {};
  for (int64_t tile = 0; tile < begin + kRows && tile < s.seq_len; tile += kTile) {
    __syncthreads();
    load_rows<kSize, kTile>(qkv + at.k, at.qkv_stride, tile, s.seq_len, size, keys);
    load_rows<kSize, kTile>(qkv + at.v, at.qkv_stride, tile, s.seq_len, size, values);
    __syncthreads();
    float dscore = 0;
    if (tile + threadIdx.x <= row && row < s.seq_len) {
      const float score = dot<kSize>(queries[threadIdx.y], keys[threadIdx.x]) * scale;
      const float dprobability = dot<kSize>(douts[threadIdx.y], values[threadIdx.x]);
      dscore = expf(score - log_sum_exp) * (dprobability - delta) * scale;
    }
    add_scaled_rows<kParts>(dscore, keys, sums);
  }
  if (row >= s.seq_len) return;
  store_row<kParts>(sums, 1.0F, size, dqkv + at.q + row * at.qkv_stride);
}

/// grid = (ceil(T / kRows), B K). A warp has a key row, its lanes a query each, of one head after
/// the other that shares the keys.
template <class T, int kParts>
__global__ void backward_keys_kernel(AttentionBackward call, const T* qkv, const T* dout, T* dqkv) {
  constexpr int kSize = kParts * kWarpSize;
  extern __shared__ __align__(16) unsigned char memory[];
  const auto keys = reinterpret_cast<Rows<kSize>>(memory);
  const auto values = keys + kRows;
  const auto queries = values + kRows;
  const auto douts = queries + kTile;
  const AttentionShape s = call.shape;
  const int64_t size = s.size;
  const int64_t shared_by = s.heads / s.kv_heads;
  const int64_t first_head = blockIdx.y * shared_by;
  const HeadOffsets first = head_offsets(s, first_head);
  const float scale = 1.0F / sqrtf(static_cast<float>(size));
  const int64_t begin = int64_t{blockIdx.x} * kRows;
  const int64_t row = begin + threadIdx.y;
  load_rows<kSize, kRows>(qkv + first.k, first.qkv_stride, begin, s.seq_len, size, keys);
  load_rows<kSize, kRows>(qkv + first.v, first.qkv_stride, begin, s.seq_len, size, values);
  float key_sums[kParts] = {};
  float value_sums[kParts] = {};
  for (int64_t head = first_head; head < first_head + shared_by; ++head) {
    const HeadOffsets at = head_offsets(s, head);
    for (int64_t tile = begin / kTile * kTile; tile < s.seq_len; tile += kTile) {
      __syncthreads();
      load_rows<kSize, kTile>(qkv + at.q, at.qkv_stride, tile, s.seq_len, size, queries);
      load_rows<kSize, kTile>(dout + at.out, at.out_stride, tile, s.seq_len, size, douts);
      __syncthreads();
      const int64_t query = tile + threadIdx.x;
      float probability = 0;
      float dscore = 0;
      if (query >= row && query < s.seq_len) {
        const int64_t statistics = head * s.seq_len + query;
        const float score = dot<kSize>(queries[threadIdx.x], keys[threadIdx.y]) * scale;
        const float dprobability = dot<kSize>(douts[threadIdx.x], values[threadIdx.y]);
        probability = expf(score - call.log_sum_exp[statistics]);
        dscore = probability * (dprobability - call.delta[statistics]) * scale;
      }
      add_scaled_rows<kParts>(probability, douts, value_sums);
      add_scaled_rows<kParts>(dscore, queries, key_sums);
    }
  }
  if (row >= s.seq_len) return;
  const int64_t offset = row * first.qkv_stride;
  store_row<kParts>(key_sums, 1.0F, size, dqkv + first.k + offset);
  store_row<kParts>(value_sums, 1.0F, size, dqkv + first.v + offset);
}

/// One warp per row of one head, grid = (ceil(T / kRows), B H).
template <class T>
__global__ void delta_kernel(AttentionBackward call, const T* dout, const T* out) {
  const AttentionShape s = call.shape;
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.y;
  if (row >= s.seq_len) return;
  const HeadOffsets at = head_offsets(s, blockIdx.y);
  const int64_t offset = at.out + row * at.out_stride;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < s.size; i += kWarpSize) {
    sum += load(dout + offset + i) * load(out + offset + i);
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) call.delta[int64_t{blockIdx.y} * s.seq_len + row] = sum;
}

/// A grid for all rows of `heads` heads of each sample.
dim3 grid_of(const AttentionShape& s, int64_t heads) {
  return dim3(static_cast<unsigned>(ceil_divide(s.seq_len, kRows)),
              static_cast<unsigned>(s.batch * heads));
}

// More than 48 kB for large heads, which a kernel must be granted first. Costs about 1 us.

template <class T, int kParts>
void launch_forward(const AttentionForward& call, cudaStream_t stream) {
  constexpr int kBytes = shared_bytes<kParts>(1);
  const dim3 threads(kWarpSize, kRows);
  cudaFuncSetAttribute(forward_kernel<T, kParts>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kBytes);
  forward_kernel<T, kParts><<<grid_of(call.shape, call.shape.heads), threads, kBytes, stream>>>(
      call, numbers_of<T>(call.qkv), numbers_of<T>(call.out));
}

template <class T, int kParts>
void launch_backward(const AttentionBackward& call, cudaStream_t stream) {
  constexpr int kBytes = shared_bytes<kParts>(2);
  cudaFuncSetAttribute(backward_queries_kernel<T, kParts>,
                       cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  cudaFuncSetAttribute(backward_keys_kernel<T, kParts>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kBytes);
  const dim3 threads(kWarpSize, kRows);
  const T* qkv = numbers_of<T>(call.qkv);
  const T* dout = numbers_of<T>(call.dout);
  T* dqkv = numbers_of<T>(call.dqkv);
  backward_queries_kernel<T, kParts>
      <<<grid_of(call.shape, call.shape.heads), threads, kBytes, stream>>>(call, qkv, dout, dqkv);
  backward_keys_kernel<T, kParts>
      <<<grid_of(call.shape, call.shape.kv_heads), threads, kBytes, stream>>>(call, qkv, dout,
                                                                              dqkv);
}

template <class T>
void forward(const AttentionForward& call, cudaStream_t stream) {
  switch (attention_padded_size(call.shape.size)) {
    case 32:
      return launch_forward<T, 1>(call, stream);
    case 64:
      return launch_forward<T, 2>(call, stream);
    case 96:
      return launch_forward<T, 3>(call, stream);
    case 128:
      return launch_forward<T, 4>(call, stream);
    case 256:
      return launch_forward<T, 8>(call, stream);
  }
}

template <class T>
void backward(const AttentionBackward& call, cudaStream_t stream) {
  switch (attention_padded_size(call.shape.size)) {
    case 32:
      return launch_backward<T, 1>(call, stream);
    case 64:
      return launch_backward<T, 2>(call, stream);
    case 96:
      return launch_backward<T, 3>(call, stream);
    case 128:
      return launch_backward<T, 4>(call, stream);
    case 256:
      return launch_backward<T, 8>(call, stream);
  }
}

template <class T>
void delta(const AttentionBackward& call, cudaStream_t stream) {
  const dim3 threads(kWarpSize, kRows);
  delta_kernel<T><<<grid_of(call.shape, call.shape.heads), threads, 0, stream>>>(
      call, numbers_of<T>(call.dout), numbers_of<T>(call.out));
}

}  // namespace

void attention_forward_exact(const AttentionForward& call, cudaStream_t stream) {
  if (call.shape.batch * call.shape.seq_len == 0) return;
  is_float32(call.qkv) ? forward<float>(call, stream) : forward<__nv_bfloat16>(call, stream);
}

void attention_backward_exact(const AttentionBackward& call, cudaStream_t stream) {
  if (call.shape.batch * call.shape.seq_len == 0) return;
  is_float32(call.qkv) ? backward<float>(call, stream) : backward<__nv_bfloat16>(call, stream);
}

void attention_delta(const AttentionBackward& call, cudaStream_t stream) {
  if (call.shape.batch * call.shape.seq_len == 0) return;
  is_float32(call.qkv) ? delta<float>(call, stream) : delta<__nv_bfloat16>(call, stream);
}

}  // namespace skein::gpu::kernels
