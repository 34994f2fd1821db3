#pragma once

#include <cstdint>

/// Sums and maxima over a warp or a block, in a fixed order: the same bits on every run.
namespace skein::gpu::kernels {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// All lanes get the sum.
template <class T>
__device__ inline T warp_sum(T value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

/// All threads of a one-dimensional block of kThreads get the sum. Every thread must call.
template <int kThreads, class T>
__device__ inline T block_sum(T value) {
  static_assert(kThreads % kWarpSize == 0, "whole warps");
  __shared__ T sums[kThreads / kWarpSize];
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  value = warp_sum(value);
  __syncthreads();  // The memory may still be read from an earlier call.
  if (lane == 0) sums[warp] = value;
  __syncthreads();
  T sum = 0;
#pragma unroll
  for (int w = 0; w < kThreads / kWarpSize; ++w) sum += sums[w];
  return sum;
}

template <int kThreads>
__device__ inline float block_max(float value) {
  __shared__ float highest[kThreads / kWarpSize];
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  value = warp_max(value);
  __syncthreads();
  if (lane == 0) highest[warp] = value;
  __syncthreads();
  float result = highest[0];
#pragma unroll
  for (int w = 1; w < kThreads / kWarpSize; ++w) result = fmaxf(result, highest[w]);
  return result;
}

}  // namespace skein::gpu::kernels
