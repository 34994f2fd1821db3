#include <cfloat>

#include "gpu/cuda/kernels/cross_entropy.hpp"
#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/reduce.cuh"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 512;

/// One block per row. A thread keeps the maximum and the sum of what it has seen so far (online
/// softmax, Milakov and Gimelshein 2018), so the row is read once before the pass that overwrites
/// it.
template <class T>
__global__ void cross_entropy_kernel(const int32_t* __restrict__ targets, T* logits, double* losses,
                                     int64_t vocab_size, float scale) {
  const int64_t row = blockIdx.x;
  T* own = logits + row * vocab_size;
  const int32_t target = targets[row];
  if (target < 0) {
    for (int64_t i = threadIdx.x; i < vocab_size; i += kThreads) store(0.0F, own + i);
    if (threadIdx.x == 0) losses[row] = 0.0;
    return;
  }
  float highest = -FLT_MAX;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < vocab_size; i += kThreads) {
    const float value = load(own + i);
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
    const float right = load(own + target) - row_highest;
    losses[row] = log(static_cast<double>(row_sum)) - static_cast<double>(right);
  }
  __syncthreads();
  const float factor = scale / row_sum;
  for (int64_t i = threadIdx.x; i < vocab_size; i += kThreads) {
    const float gradient = expf(load(own + i) - row_highest) * factor;
    store(i == target ? gradient - scale : gradient, own + i);
  }
}

}  // namespace

void cross_entropy(const int32_t* targets, Numbers logits, double* losses, int64_t rows,
                   int64_t vocab_size, float scale, cudaStream_t stream) {
  if (rows == 0) return;
  const auto blocks = static_cast<unsigned>(rows);
  if (is_float32(logits)) {
    cross_entropy_kernel<float><<<blocks, kThreads, 0, stream>>>(targets, numbers_of<float>(logits),
                                                                 losses, vocab_size, scale);
  } else {
    cross_entropy_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(
        targets, numbers_of<__nv_bfloat16>(logits), losses, vocab_size, scale);
  }
}

}  // namespace skein::gpu::kernels
