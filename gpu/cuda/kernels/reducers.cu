#include "gpu/cuda/kernels/reduce.cuh"
#include "gpu/cuda/kernels/reducers.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 256;

/// Magnitudes in the order of their bits, which is that of their values.
__device__ uint32_t magnitude(float value) { return __float_as_uint(value) & 0x7FFFFFFFU; }

/// Cuts the band into even parts, which is in the logarithm of the magnitude, nearly.
__device__ uint32_t threshold(const SelectBand& band, int t) {
  const uint64_t width = band.high - band.low;
  return band.low + static_cast<uint32_t>(width * (t + 1) / (kSelectThresholds + 1));
}

__global__ void start_band_kernel(SelectBand* band) {
  band->low = 0;
  band->high = 0x80000000U;
  band->reach_high = 0;
}

/// partial [blocks, kSelectThresholds] := how many values of each block reach each threshold.
/// grid = select_blocks(count). Bound: DRAM.
__global__ void count_reaching_kernel(const float* __restrict__ values, int64_t count,
                                      const SelectBand* __restrict__ band, int64_t* partial) {
  uint32_t thresholds[kSelectThresholds];
  int64_t counts[kSelectThresholds] = {};
#pragma unroll
  for (int t = 0; t < kSelectThresholds; ++t) thresholds[t] = threshold(*band, t);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    const uint32_t bits = magnitude(values[i]);
#pragma unroll
    for (int t = 0; t < kSelectThresholds; ++t) counts[t] += bits >= thresholds[t] ? 1 : 0;
  }
#pragma unroll
  for (int t = 0; t < kSelectThresholds; ++t) {
    const int64_t sum = block_sum<kThreads>(counts[t]);
    if (threadIdx.x == 0) partial[int64_t{blockIdx.x} * kSelectThresholds + t] = sum;
  }
}

/// One block: takes the part of the band that the k-th magnitude is in.
__global__ void narrow_band_kernel(const int64_t* __restrict__ partial, int64_t blocks, int64_t k,
                                   SelectBand* band) {
  const SelectBand before = *band;
  SelectBand after = before;
  for (int t = 0; t < kSelectThresholds; ++t) {
    int64_t sum = 0;
    for (int64_t b = threadIdx.x; b < blocks; b += kThreads) {
      sum += partial[b * kSelectThresholds + t];
    }
    sum = block_sum<kThreads>(sum);
    const uint32_t at = threshold(before, t);
    if (sum >= k) {
      after.low = at;  // Ascending, so the last one counts.
    } else if (at < after.high) {
      after.high = at;
      after.reach_high = sum;
    }
  }
  if (threadIdx.x == 0) *band = after;
}

/// Above the k-th magnitude, and equal to it, in one number: no tile has 2^16 values.
__device__ int select_flags(float value, uint32_t cut) {
  const uint32_t bits = magnitude(value);
  return (bits > cut ? 1 : 0) + (bits == cut ? 1 << 16 : 0);
}

/// above and ties [chunks] := how many values of each chunk are above the cut, and equal to it.
__global__ void count_selected_kernel(const float* __restrict__ values, int64_t count,
                                      const SelectBand* __restrict__ band, int64_t* above,
                                      int64_t* ties) {
  const uint32_t cut = band->low;
  const int64_t begin = int64_t{blockIdx.x} * kSelectChunk;
  const int64_t end = begin + kSelectChunk < count ? begin + kSelectChunk : count;
  int64_t own_above = 0, own_ties = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const int flags = select_flags(values[i], cut);
    own_above += flags & 0xFFFF;
    own_ties += flags >> 16;
  }
  own_above = block_sum<kThreads>(own_above);
  own_ties = block_sum<kThreads>(own_ties);
  if (threadIdx.x != 0) return;
  above[blockIdx.x] = own_above;
  ties[blockIdx.x] = own_ties;
}

/// Sum over the threads in front of this one; `total` gets that over all. Every thread must call.
template <class T>
__device__ T block_scan(T value, T& total) {
  __shared__ T sums[kThreads / kWarpSize];
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  T through = value;
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const T before = __shfl_sync(kAllLanes, through, lane >= offset ? lane - offset : lane);
    if (lane >= offset) through += before;
  }
  __syncthreads();  // The memory may still be read from an earlier call.
  if (lane == kWarpSize - 1) sums[warp] = through;
  __syncthreads();
  T in_front = through - value;
  total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / kWarpSize; ++w) {
    if (w < warp) in_front += sums[w];
    total += sums[w];
  }
  return in_front;
}

/// One block: values := for each, the sum of those in front of it.
__global__ void scan_kernel(int64_t* values, int64_t count) {
  int64_t carried = 0;
  for (int64_t begin = 0; begin < count; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    int64_t total = 0;
    const int64_t in_front = block_scan(i < count ? values[i] : 0, total);
    if (i < count) values[i] = carried + in_front;
    carried += total;
  }
}

/// One block per chunk, a tile of values at a time, so that indices ascend.
__global__ void write_selected_kernel(const float* __restrict__ values, int64_t count, int64_t k,
                                      const SelectBand* __restrict__ band,
                                      const int64_t* __restrict__ above_before,
                                      const int64_t* __restrict__ ties_before,
                                      uint32_t* __restrict__ indices) {
  const uint32_t cut = band->low;
  const int64_t ties_taken = k - band->reach_high;
  int64_t above = above_before[blockIdx.x];
  int64_t ties = ties_before[blockIdx.x];
  const int64_t chunk = int64_t{blockIdx.x} * kSelectChunk;
  for (int64_t begin = chunk; begin < chunk + kSelectChunk && begin < count; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    const int flags = i < count ? select_flags(values[i], cut) : 0;
    int total = 0;
    const int in_front = block_scan(flags, total);
    const int64_t ties_here = ties + (in_front >> 16);
    const int64_t above_here = above + (in_front & 0xFFFF);
    const bool is_taken = (flags & 0xFFFF) != 0 || (flags >> 16 != 0 && ties_here < ties_taken);
    const int64_t to = above_here + (ties_here < ties_taken ? ties_here : ties_taken);
    if (is_taken && to < k) indices[to] = static_cast<uint32_t>(i);
    above += total & 0xFFFF;
    ties += total >> 16;
  }
}

/// partial [blocks, 3]. One block per chunk. Bound: DRAM.
__global__ void dot_products_kernel(const float* __restrict__ a, const float* __restrict__ b,
                                    int64_t count, double* partial) {
  const int64_t begin = int64_t{blockIdx.x} * kChunkElements;
  const int64_t end = begin + kChunkElements < count ? begin + kChunkElements : count;
  double ab = 0, aa = 0, bb = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const double x = a[i], y = b[i];
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  ab = block_sum<kThreads>(ab);
  aa = block_sum<kThreads>(aa);
  bb = block_sum<kThreads>(bb);
  if (threadIdx.x != 0) return;
  double* to = partial + 3 * int64_t{blockIdx.x};
  to[0] = ab;
  to[1] = aa;
  to[2] = bb;
}

/// One block.
__global__ void add_dots_kernel(const double* partial, int64_t blocks, double* dots) {
  for (int each = 0; each < 3; ++each) {
    double sum = 0;
    for (int64_t b = threadIdx.x; b < blocks; b += kThreads) sum += partial[3 * b + each];
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) dots[each] = sum;
  }
}

/// Threads stride. Bound: DRAM.
__global__ void combine_kernel(double own_factor, float* __restrict__ own, double other_factor,
                               const float* __restrict__ other, int64_t count) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    own[i] = static_cast<float>(own_factor * own[i] + other_factor * other[i]);
  }
}

}  // namespace

void select_top_k(const float* values, int64_t count, int64_t k, void* scratch, uint32_t* indices,
                  cudaStream_t stream) {
  auto* band = static_cast<SelectBand*>(scratch);
  auto* partial = reinterpret_cast<int64_t*>(band + 1);
  const auto blocks = static_cast<unsigned>(select_blocks(count));
  const auto chunks = static_cast<unsigned>(select_chunks(count));
  int64_t* above = partial + int64_t{kSelectThresholds} * blocks;
  int64_t* ties = above + chunks;
  start_band_kernel<<<1, 1, 0, stream>>>(band);
  for (int pass = 0; pass < kSelectPasses; ++pass) {
    count_reaching_kernel<<<blocks, kThreads, 0, stream>>>(values, count, band, partial);
    narrow_band_kernel<<<1, kThreads, 0, stream>>>(partial, blocks, k, band);
  }
  count_selected_kernel<<<chunks, kThreads, 0, stream>>>(values, count, band, above, ties);
  scan_kernel<<<1, kThreads, 0, stream>>>(above, chunks);
  scan_kernel<<<1, kThreads, 0, stream>>>(ties, chunks);
  write_selected_kernel<<<chunks, kThreads, 0, stream>>>(values, count, k, band, above, ties,
                                                         indices);
}

void dot_products(const float* a, const float* b, int64_t count, double* partial, double* dots,
                  cudaStream_t stream) {
  const int64_t blocks = dot_blocks(count);
  if (blocks > 0) {
    dot_products_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(a, b, count,
                                                                                partial);
  }
  add_dots_kernel<<<1, kThreads, 0, stream>>>(partial, blocks, dots);
}

void combine(double own_factor, float* own, double other_factor, const float* other, int64_t count,
             cudaStream_t stream) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(striding_blocks(count, 4 * kThreads));
  combine_kernel<<<blocks, kThreads, 0, stream>>>(own_factor, own, other_factor, other, count);
}

}  // namespace skein::gpu::kernels
