#include <cmath>

#include "gpu/cuda/kernels/attention.hpp"
#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kTogether = 4;  // Keys of a warp between two steps of its softmax.

/// grid = (T, ceil(2 K D / kThreads)). One thread per number.
template <class T>
__global__ void append_kernel(CachedAttention call, const T* qkv, T* keys, T* values) {
  const AttentionShape s = call.shape;
  const int64_t width = s.kv_heads * s.size;
  int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= 2 * width) return;
  const int64_t row = blockIdx.x;
  const T number = qkv[row * (s.heads * s.size + 2 * width) + s.heads * s.size + column];
  T* to = column < width ? keys : values;
  column %= width;
  const int64_t position = column / s.size * call.capacity + call.length + row;
  to[position * s.size + column % s.size] = number;
}

/// What a warp has seen of the keys that it looks at: an online softmax, a lane having the channels
/// that lie a warp apart.
template <int kParts>
struct Seen {
  float highest = -INFINITY;
  float total = 0;
  float sums[kParts] = {};
};

/// Channel `part` of the lane in a row of `size` numbers, zero past its end.
template <class T>
__device__ float channel(const T* row, int part, int64_t size) {
  const int column = part * kWarpSize + static_cast<int>(threadIdx.x % kWarpSize);
  return column < size ? load(row + column) : 0.0F;
}

/// The next kTogether keys, of which there are `count`, all by one warp. `query` is scaled.
template <class T, int kParts>
__device__ void see(const T* keys, const T* values, int64_t count, int64_t size,
                    const float (&query)[kParts], Seen<kParts>& seen) {
  float scores[kTogether];
  float higher = seen.highest;
#pragma unroll
  for (int n = 0; n < kTogether; ++n) {
    float part = 0;
    if (n < count) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) part += query[p] * channel(keys + n * size, p, size);
    }
    scores[n] = n < count ? warp_sum(part) : -INFINITY;
    higher = fmaxf(higher, scores[n]);
  }
  const float shrink = expf(seen.highest - higher);
  seen.highest = higher;
  seen.total *= shrink;
#pragma unroll
  for (int p = 0; p < kParts; ++p) seen.sums[p] *= shrink;
#pragma unroll
  for (int n = 0; n < kTogether; ++n) {
    if (n >= count) continue;
    const float probability = expf(scores[n] - higher);
    seen.total += probability;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      seen.sums[p] += probability * channel(values + n * size, p, size);
    }
  }
}

/// grid = (T, H): a block has a query, its warps take keys in turn. What they have seen is added up
/// in their order, so a row has the same bits whatever rows are computed with it. Bound: DRAM.
template <class T, int kParts>
__global__ void __launch_bounds__(kThreads)
    attend_kernel(CachedAttention call, const T* qkv, const T* keys, const T* values, T* out) {
  __shared__ float highest[kWarps];
  __shared__ float totals[kWarps];
  __shared__ float sums[kWarps][kParts * kWarpSize];
  const AttentionShape s = call.shape;
  const int64_t size = s.size;
  const int64_t row = blockIdx.x;
  const int64_t head = blockIdx.y;
  const HeadOffsets at = head_offsets(s, head);
  const int64_t cached = head / (s.heads / s.kv_heads) * call.capacity * size;
  const int64_t count = call.length + row + 1;
  const int warp = threadIdx.x / kWarpSize;
  const float scale = 1.0F / sqrtf(static_cast<float>(size));
  float query[kParts];
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    query[p] = scale * channel(qkv + at.q + row * at.qkv_stride, p, size);
  }
  Seen<kParts> seen;
  for (int64_t first = warp * kTogether; first < count; first += kWarps * kTogether) {
    const int64_t offset = cached + first * size;
    see(keys + offset, values + offset, count - first, size, query, seen);
  }
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    sums[warp][p * kWarpSize + threadIdx.x % kWarpSize] = seen.sums[p];
  }
  if (threadIdx.x % kWarpSize == 0) {
    highest[warp] = seen.highest;
    totals[warp] = seen.total;
  }
  __syncthreads();
  if (threadIdx.x >= size) return;  // Heads have at most kThreads channels.
  float overall = highest[0];       // Finite: the first warp has seen a key.
  for (int w = 1; w < kWarps; ++w) overall = fmaxf(overall, highest[w]);
  float total = 0;
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) {
    const float factor = expf(highest[w] - overall);
    total += factor * totals[w];
    sum += factor * sums[w][threadIdx.x];
  }
  store(sum / total, out + row * at.out_stride + at.out + threadIdx.x);
}

template <class T>
void append(const CachedAttention& call, cudaStream_t stream) {
  const AttentionShape& s = call.shape;
  const dim3 grid(static_cast<unsigned>(s.seq_len),
                  static_cast<unsigned>(ceil_divide(2 * s.kv_heads * s.size, kThreads)));
  append_kernel<T><<<grid, kThreads, 0, stream>>>(
      call, numbers_of<T>(call.qkv), numbers_of<T>(call.keys), numbers_of<T>(call.values));
}

template <class T, int kParts>
void launch(const CachedAttention& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.shape.seq_len),
                  static_cast<unsigned>(call.shape.heads));
  attend_kernel<T, kParts>
      <<<grid, kThreads, 0, stream>>>(call, numbers_of<T>(call.qkv), numbers_of<T>(call.keys),
                                      numbers_of<T>(call.values), numbers_of<T>(call.out));
}

template <class T>
void attend(const CachedAttention& call, cudaStream_t stream) {
  switch (attention_padded_size(call.shape.size)) {
    case 32:
      return launch<T, 1>(call, stream);
    case 64:
      return launch<T, 2>(call, stream);
    case 96:
      return launch<T, 3>(call, stream);
    case 128:
      return launch<T, 4>(call, stream);
    case 256:
      return launch<T, 8>(call, stream);
  }
}

}  // namespace

void append_to_cache(const CachedAttention& call, cudaStream_t stream) {
  if (call.shape.seq_len == 0) return;
  is_float32(call.qkv) ? append<float>(call, stream) : append<__nv_bfloat16>(call, stream);
}

void attend_to_cache(const CachedAttention& call, cudaStream_t stream) {
  if (call.shape.seq_len == 0) return;
  is_float32(call.qkv) ? attend<float>(call, stream) : attend<__nv_bfloat16>(call, stream);
}

}  // namespace skein::gpu::kernels
