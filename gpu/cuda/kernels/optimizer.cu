#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/optimizer.hpp"
#include "gpu/cuda/kernels/reduce.cuh"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 256;

struct AdamwStep {
  float step, root, keep, beta1, beta2, eps, gradient_factor;

  __device__ void operator()(float& weight, float gradient, float& moment1, float& moment2) const {
    const float g = gradient * gradient_factor;
    const float m = beta1 * moment1 + (1.0F - beta1) * g;
    const float v = beta2 * moment2 + (1.0F - beta2) * g * g;
    moment1 = m;
    moment2 = v;
    weight = weight * keep - step * m / (sqrtf(v) * root + eps);
  }
};

/// To whole vectors of four; null is.
__device__ bool is_aligned(const float* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(float4) == 0;
}
__device__ bool is_aligned(const __nv_bfloat16* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (4 * sizeof(__nv_bfloat16)) == 0;
}

/// One block per chunk; four elements at a time where the tensor is aligned. Bound: DRAM.
__global__ void adamw_kernel(AdamwFactors factors, const AdamwSlice* __restrict__ slices,
                             const Chunk* __restrict__ chunks) {
  const Chunk chunk = chunks[blockIdx.x];
  const AdamwSlice slice = slices[chunk.tensor];
  float* weight = slice.weight + chunk.begin;
  const float* gradient = slice.gradient + chunk.begin;
  float* moment1 = slice.moment1 + chunk.begin;
  float* moment2 = slice.moment2 + chunk.begin;
  __nv_bfloat16* rounded = slice.rounded == nullptr
                               ? nullptr
                               : reinterpret_cast<__nv_bfloat16*>(slice.rounded) + chunk.begin;
  const AdamwStep step{factors.lr / factors.correction1,
                       1.0F / sqrtf(factors.correction2),
                       slice.decays ? 1.0F - factors.lr * factors.decay : 1.0F,
                       factors.beta1,
                       factors.beta2,
                       factors.eps,
                       factors.gradient_factor};
  int begin = 0;
  if (is_aligned(weight) && is_aligned(gradient) && is_aligned(moment1) && is_aligned(moment2) &&
      is_aligned(rounded)) {
    const int vectors = chunk.count / 4;
    for (int i = threadIdx.x; i < vectors; i += kThreads) {
      float4 w = reinterpret_cast<float4*>(weight)[i];
      const float4 g = reinterpret_cast<const float4*>(gradient)[i];
      float4 m = reinterpret_cast<float4*>(moment1)[i];
      float4 v = reinterpret_cast<float4*>(moment2)[i];
      step(w.x, g.x, m.x, v.x);
      step(w.y, g.y, m.y, v.y);
      step(w.z, g.z, m.z, v.z);
      step(w.w, g.w, m.w, v.w);
      reinterpret_cast<float4*>(weight)[i] = w;
      const float written[4] = {w.x, w.y, w.z, w.w};
      if (rounded != nullptr) store_pack(written, rounded + 4 * i);
      reinterpret_cast<float4*>(moment1)[i] = m;
      reinterpret_cast<float4*>(moment2)[i] = v;
    }
    begin = 4 * vectors;
  }
  for (int i = begin + threadIdx.x; i < chunk.count; i += kThreads) {
    step(weight[i], gradient[i], moment1[i], moment2[i]);
    if (rounded != nullptr) store(weight[i], rounded + i);
  }
}

/// One thread per element. Bound: DRAM.
__global__ void sgd_kernel(SgdFactors factors, SgdSlice slice) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= slice.count) return;
  const float before = slice.weight[i];
  const float g = slice.gradient[i] * factors.gradient_factor + factors.decay * before;
  const float v = factors.momentum * slice.velocity[i] + g;
  const float after = before - factors.lr * v;
  slice.velocity[i] = v;
  slice.weight[i] = after;
  if (slice.rounded != nullptr) {
    store(after, reinterpret_cast<__nv_bfloat16*>(slice.rounded) + i);
  }
}

/// One block per chunk. Bound: DRAM.
__global__ void squares_kernel(const float* const* __restrict__ tensors,
                               const Chunk* __restrict__ chunks, double* partial) {
  const Chunk chunk = chunks[blockIdx.x];
  const float* values = tensors[chunk.tensor] + chunk.begin;
  double sum = 0;
  for (int i = threadIdx.x; i < chunk.count; i += kThreads) {
    const double value = values[i];
    sum += value * value;
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// One block.
__global__ void sum_kernel(const double* partial, int64_t count, double* result) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) *result = sum;
}

}  // namespace

void adamw(const AdamwFactors& factors, const AdamwSlice* slices, const Chunk* chunks,
           int64_t chunk_count, cudaStream_t stream) {
  if (chunk_count == 0) return;
  adamw_kernel<<<static_cast<unsigned>(chunk_count), kThreads, 0, stream>>>(factors, slices,
                                                                            chunks);
}

void sgd(const SgdFactors& factors, const SgdSlice& slice, cudaStream_t stream) {
  if (slice.count == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_divide(slice.count, kThreads));
  sgd_kernel<<<blocks, kThreads, 0, stream>>>(factors, slice);
}

void sums_of_squares(const float* const* tensors, const Chunk* chunks, int64_t chunk_count,
                     double* partial, double* sum, cudaStream_t stream) {
  if (chunk_count > 0) {
    squares_kernel<<<static_cast<unsigned>(chunk_count), kThreads, 0, stream>>>(tensors, chunks,
                                                                                partial);
  }
  sum_kernel<<<1, kThreads, 0, stream>>>(partial, chunk_count, sum);
}

}  // namespace skein::gpu::kernels
