#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {

struct AdamwFactors {
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, decay = 0;
  float correction1 = 1, correction2 = 1;
  float gradient_factor = 1;
};
/// One AdamW step of all chunks of all tensors, on float32 masters, of which the new ones are also
/// written rounded. `slices` and `chunks` are device memory. Bytes: 28 for every element, 30 with a
/// rounded copy; FLOPs: about 16.
void adamw(const AdamwFactors& factors, const AdamwSlice* slices, const Chunk* chunks,
           int64_t chunk_count, cudaStream_t stream);

struct SgdFactors {
  float lr = 0, momentum = 0, decay = 0, gradient_factor = 1;
};
struct SgdSlice {
  float* weight = nullptr;
  const float* gradient = nullptr;
  float* velocity = nullptr;
  uint16_t* rounded = nullptr;  // bfloat16, null if there is none.
  int64_t count = 0;
};
/// Bytes: 20 count, 22 with a rounded copy; FLOPs: 6 count.
void sgd(const SgdFactors& factors, const SgdSlice& slice, cudaStream_t stream);

/// Sums of squares in float64: partial [chunk_count] := one for each chunk, then *sum := their sum,
/// in an order that depends on the chunks only. `tensors` are device pointers in device memory.
/// Bytes: 4 for every element; FLOPs: 2.
void sums_of_squares(const float* const* tensors, const Chunk* chunks, int64_t chunk_count,
                     double* partial, double* sum, cudaStream_t stream);

}  // namespace skein::gpu::kernels
