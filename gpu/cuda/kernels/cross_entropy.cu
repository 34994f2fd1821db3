#include <cfloat>

#include "gpu/cuda/kernels/cross_entropy.hpp"
#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/reduce.cuh"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 512;

/// Calls `use(first, values)` for the numbers of a row that are this thread's, kWidth at a time,
/// and for those at the end of the row that are fewer, one at a time. The same numbers in every
/// call.
template <int kWidth, class T, class Use>
__device__ inline void for_own(const T* row, int64_t count, const Use& use) {
  const int64_t whole = count / kWidth * kWidth;
  for (int64_t i = int64_t{threadIdx.x} * kWidth; i < whole; i += kThreads * kWidth) {
    float values[kWidth];
    load_pack(row + i, values);
    use(i, values);
  }
  for (int64_t i = whole + threadIdx.x; i < count; i += kThreads) {
    float value[1] = {load(row + i)};
    use(i, value);
  }
}

/// One block per row. A thread keeps the maximum and the sum of what it has seen so far (online
/// softmax, Milakov and Gimelshein 2018), so the row is read once before the pass that overwrites
/// it.
template <class T, int kWidth>
__global__ void cross_entropy_kernel(CrossEntropy call, T* logits) {
  const int64_t row = blockIdx.x;
  T* own = logits + row * call.stride;
  const int32_t target = call.targets[row];
  if (target < 0) {
    for (int64_t i = threadIdx.x; i < call.vocab_size; i += kThreads) store(0.0F, own + i);
    if (threadIdx.x == 0) call.losses[row] = 0.0;
    return;
  }
  float highest = -FLT_MAX;
  float sum = 0;
  for_own<kWidth>(own, call.vocab_size, [&](int64_t, const auto& values) {
    for (const float value : values) {
      if (value > highest) {
        sum *= expf(highest - value);
        highest = value;
      }
      sum += expf(value - highest);
    }
  });
  const float row_highest = block_max<kThreads>(highest);
  const float row_sum = block_sum<kThreads>(sum * expf(highest - row_highest));
  // Behind the barriers above and before the one below, so the logit is still there.
  if (threadIdx.x == 0) {
    const float right = load(own + target) - row_highest;
    call.losses[row] = log(static_cast<double>(row_sum)) - static_cast<double>(right);
  }
  __syncthreads();
  const float factor = call.scale / row_sum;
  for_own<kWidth>(own, call.vocab_size, [&](int64_t first, auto& values) {
    int64_t i = first;
    for (float& value : values) {
      const float gradient = expf(value - row_highest) * factor;
      value = i == target ? gradient - call.scale : gradient;
      ++i;
    }
    store_pack(values, own + first);
  });
}

/// One block.
__global__ void sum_losses_kernel(const double* losses, double* sum, int64_t rows) {
  double own = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) own += losses[row];
  const double all = block_sum<kThreads>(own);
  if (threadIdx.x == 0) *sum = all;
}

template <class T>
void launch(const CrossEntropy& call, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(call.rows);
  T* logits = numbers_of<T>(call.logits);
  constexpr int kWidth = kWide<T>;
  if (fits_packs(call.logits, call.stride, kWidth)) {
    cross_entropy_kernel<T, kWidth><<<blocks, kThreads, 0, stream>>>(call, logits);
  } else {
    cross_entropy_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(call, logits);
  }
}

}  // namespace

void cross_entropy(const CrossEntropy& call, cudaStream_t stream) {
  if (call.rows == 0) return;
  if (is_float32(call.logits)) {
    launch<float>(call, stream);
  } else {
    launch<__nv_bfloat16>(call, stream);
  }
  sum_losses_kernel<<<1, kThreads, 0, stream>>>(call.losses, call.sum, call.rows);
}

}  // namespace skein::gpu::kernels
