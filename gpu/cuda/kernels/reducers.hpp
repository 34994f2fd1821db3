#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/cuda/launch_shape.hpp"

/// What sparse and adaptive sums of gradients need of a device.
namespace skein::gpu::kernels {

/// Passes over the values in which the search for the k-th magnitude ends: each but the last few
/// takes 4 of 31 bits off the range.
constexpr int kSelectPasses = 8;
constexpr int kSelectThresholds = 15;  // Counted in one pass: a pass stays bound by memory.
/// Values of one block where their order counts, and those of a pass that counts.
constexpr int64_t kSelectChunk = 16384;
constexpr int64_t select_chunks(int64_t count) { return ceil_divide(count, kSelectChunk); }
constexpr int64_t select_blocks(int64_t count) { return striding_blocks(count, 1024); }

/// The k-th largest magnitude is in [low, high), in the order of the bits.
struct SelectBand {
  uint32_t low, high;
  int64_t reach_high;  // Values of `high` or more.
};
/// Bytes of scratch of `select_top_k`.
constexpr int64_t select_bytes(int64_t count) {
  return static_cast<int64_t>(sizeof(SelectBand)) +
         8 * (kSelectThresholds * select_blocks(count) + 2 * select_chunks(count));
}

/// indices [k] := those of the k largest magnitudes of values [count], ascending; of equal
/// magnitudes the lower index. 1 <= k <= count < 2^32. NaN and infinity count as the largest.
/// Bytes: 40 count.
void select_top_k(const float* values, int64_t count, int64_t k, void* scratch, uint32_t* indices,
                  cudaStream_t stream);

/// Blocks of `dot_products`.
constexpr int64_t dot_blocks(int64_t count) { return ceil_divide(count, kChunkElements); }
/// dots [3] := a.b, a.a and b.b of a and b [count], in float64 and in an order that depends on
/// `count` only. partial [3 * dot_blocks(count)]. Bytes: 8 count; FLOPs: 6 count.
void dot_products(const float* a, const float* b, int64_t count, double* partial, double* dots,
                  cudaStream_t stream);

/// own := own_factor * own + other_factor * other, in float64, rounded once. Bytes: 12 count.
void combine(double own_factor, float* own, double other_factor, const float* other, int64_t count,
             cudaStream_t stream);

}  // namespace skein::gpu::kernels
