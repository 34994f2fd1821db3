#include <cmath>

#include "gpu/cuda/kernels/attention.hpp"
#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/tensor_core.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kQueries = 16 * kWarps;  // Rows of a block, 16 for each warp.
constexpr int kKeys = 64;              // Keys in shared memory at once.
constexpr int kKeyParts = kKeys / 8;
constexpr float kLog2E = 1.4426950408889634F;

/// Scores of 16 queries with kKeys keys, as they lie in the lanes of a warp.
using Scores = float[kKeyParts][4];

/// Hides keys behind the query. `row` is the first of the lane's two rows (the other is 8 below),
/// `key` the first of the lane's columns.
__device__ void hide_later_keys(Scores& scores, int64_t row, int64_t key) {
#pragma unroll
  for (int n = 0; n < kKeyParts; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (key + n * 8 + i % 2 > row + (i < 2 ? 0 : 8)) scores[n][i] = -INFINITY;
    }
  }
}

/// The online softmax of two rows: what was seen so far.
struct RowState {
  float highest[2] = {-INFINITY, -INFINITY};  // Of the scores before they are scaled.
  float total[2] = {0, 0};                    // This lane's part.
};

/// scores := exp(scale (score - highest)); returns by how much earlier sums shrink.
__device__ float2 softmax_step(Scores& scores, float scale_log2, RowState& state) {
  float shrink[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float higher = state.highest[half];
#pragma unroll
    for (int n = 0; n < kKeyParts; ++n) {
      higher = fmaxf(higher, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    }
    higher = row_max(higher);  // Finite: the first keys are seen by every query.
    shrink[half] = exp2f((state.highest[half] - higher) * scale_log2);
    state.highest[half] = higher;
    state.total[half] *= shrink[half];
#pragma unroll
    for (int n = 0; n < kKeyParts; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[n][i] = exp2f((scores[n][i] - higher) * scale_log2);
        state.total[half] += scores[n][i];
      }
    }
  }
  return make_float2(shrink[0], shrink[1]);
}

/// grid = (ceil(T / kQueries), B H), the longest rows first. Shared memory: a tile of keys and one
/// of values, at most 34 kB. Bound: the tensor cores.
template <int kSize>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(AttentionForward call, const __nv_bfloat16* qkv, __nv_bfloat16* all_out,
                   RowAccess access) {
  constexpr int kStride = kSize + kTilePadding;
  __shared__ __align__(16) __nv_bfloat16 keys[kKeys * kStride];
  __shared__ __align__(16) __nv_bfloat16 values[kKeys * kStride];
  const AttentionShape s = call.shape;
  const int64_t size = s.size;
  const HeadOffsets at = head_offsets(s, blockIdx.y);
  const int64_t begin = int64_t{gridDim.x - 1 - blockIdx.x} * kQueries;
  const int warp = threadIdx.x / kWarpSize;
  const int g = threadIdx.x % kWarpSize / 4;
  const int t = threadIdx.x % 4;
  const int64_t row = begin + warp * 16 + g;
  const float scale = 1.0F / sqrtf(static_cast<float>(size));

  // The queries pass through the memory of the keys on their way to registers.
  load_tile<kQueries, kSize, kThreads>(qkv + at.q, at.qkv_stride, begin, s.seq_len, size,
                                       access.by_8, keys);
  __syncthreads();
  FragmentA queries[kSize / 16];
#pragma unroll
  for (int k = 0; k < kSize / 16; ++k) queries[k] = load_a<kStride>(keys, warp * 16, k * 16);

  float sums[kSize / 8][4] = {};
  RowState state;
  for (int64_t tile = 0; tile < begin + kQueries && tile < s.seq_len; tile += kKeys) {
    __syncthreads();
    load_tile<kKeys, kSize, kThreads>(qkv + at.k, at.qkv_stride, tile, s.seq_len, size, access.by_8,
                                      keys);
    load_tile<kKeys, kSize, kThreads>(qkv + at.v, at.qkv_stride, tile, s.seq_len, size, access.by_8,
                                      values);
    __syncthreads();
    Scores scores = {};
#pragma unroll
    for (int k = 0; k < kSize / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kKeyParts; ++n) {
        multiply_add(scores[n], queries[k], load_b_by_columns<kStride>(keys, n * 8, k * 16));
      }
    }
    if (tile + kKeys > begin + warp * 16) hide_later_keys(scores, row, tile + 2 * t);
    const float2 shrink = softmax_step(scores, scale * kLog2E, state);
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      sums[n][0] *= shrink.x;
      sums[n][1] *= shrink.x;
      sums[n][2] *= shrink.y;
      sums[n][3] *= shrink.y;
    }
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      const FragmentA probabilities = as_a(scores[2 * k], scores[2 * k + 1]);
#pragma unroll
      for (int n = 0; n < kSize / 8; ++n) {
        multiply_add(sums[n], probabilities, load_b_by_rows<kStride>(values, k * 16, n * 8));
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t own = row + 8 * half;
    const float total = row_sum(state.total[half]);
    if (own >= s.seq_len) continue;
    __nv_bfloat16* out = all_out + at.out + own * at.out_stride;
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      store_two(sums[n][2 * half] / total, sums[n][2 * half + 1] / total, n * 8 + 2 * t, size,
                access.by_2, out);
    }
    if (t == 0) {
      call.log_sum_exp[int64_t{blockIdx.y} * s.seq_len + own] =
          state.highest[half] * scale + logf(total);
    }
  }
}

template <int kSize>
void launch(const AttentionForward& call, cudaStream_t stream) {
  const AttentionShape& s = call.shape;
  const dim3 grid(static_cast<unsigned>(ceil_divide(s.seq_len, kQueries)),
                  static_cast<unsigned>(s.batch * s.heads));
  const RowAccess access{fits_packs(call.qkv, s.size, 8), fits_packs(call.out, s.size, 2)};
  forward_kernel<kSize><<<grid, kThreads, 0, stream>>>(call, numbers_of<__nv_bfloat16>(call.qkv),
                                                       numbers_of<__nv_bfloat16>(call.out), access);
}

}  // namespace

void attention_forward(const AttentionForward& call, cudaStream_t stream) {
  if (call.shape.batch * call.shape.seq_len == 0) return;
  switch (attention_padded_size(call.shape.size)) {
    case 32:
      return launch<32>(call, stream);
    case 64:
      return launch<64>(call, stream);
    case 96:
      return launch<96>(call, stream);
    case 128:
      return launch<128>(call, stream);
  }
}

}  // namespace skein::gpu::kernels
