#include <cfloat>

#include "gpu/cuda/kernels/cross_entropy.hpp"
#include "gpu/cuda/kernels/reduce.cuh"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 512;

/// One block per row. A thread keeps the maximum and the sum of what it has seen so far (online
/// softmax, Milakov and Gimelshein 2018), so the row is read once before the pass that overwrites
/// it.
__global__ void cross_entropy_kernel(const int32_t* __restrict__ targets, float* logits,
                                     double* losses, int64_t vocab_size, float scale) {
  const int64_t row = blockIdx.x;
  float* own = logits + row * vocab_size;
  const int32_t target = targets[row];
  if (target < 0) {
    for (int64_t i = threadIdx.x; i < vocab_size; i += kThreads) own[i] = 0.0F;
    if (threadIdx.x == 0) losses[row] = 0.0;
    return;
  }
  float highest = -FLT_MAX;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < vocab_size; i += kThreads) {
    const float value = own[i];
    if (value > highest) {
      sum *= expf(highest - value);
      highest = value;
    }
    sum += expf(value - highest);
  }
  const float row_highest = block_max<kThreads>(highest);
  const float row_sum = block_sum<kThreads>(sum * expf(highest - row_highest));
  // Behind the barriers above and before the one below, so the logit is still there.
  if (threadIdx.x == 0) {
    const float right = own[target] - row_highest;
    losses[row] = log(static_cast<double>(row_sum)) - static_cast<double>(right);
  }
  __syncthreads();
  const float factor = scale / row_sum;
  for (int64_t i = threadIdx.x; i < vocab_size; i += kThreads) {
    const float gradient = expf(own[i] - row_highest) * factor;
    own[i] = i == target ? gradient - scale : gradient;
  }
}

}  // namespace

void cross_entropy(const int32_t* targets, float* logits, double* losses, int64_t rows,
                   int64_t vocab_size, float scale, cudaStream_t stream) {
  if (rows == 0) return;
  cross_entropy_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      targets, logits, losses, vocab_size, scale);
}

}  // namespace skein::gpu::kernels
