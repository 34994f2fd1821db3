#include <cmath>

#include "gpu/cuda/kernels/attention.hpp"
#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/tensor_core.cuh"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kOwn = 16 * kWarps;  // Rows of a block, 16 for each warp: queries or keys.
constexpr int kOther = 32;         // Rows of the other side in shared memory at once.
constexpr int kOtherParts = kOther / 8;
constexpr float kLog2E = 1.4426950408889634F;

/// 16 rows of the block against kOther of the other side, as they lie in the lanes of a warp.
using Pairs = float[kOtherParts][4];

/// pairs += rows [16] of `own` times the rows of `other`.
template <int kSize>
__device__ void multiply_rows(const __nv_bfloat16* own, int own_row, const __nv_bfloat16* other,
                              Pairs& pairs) {
  constexpr int kStride = kSize + kTilePadding;
#pragma unroll
  for (int k = 0; k < kSize / 16; ++k) {
    const FragmentA a = load_a<kStride>(own, own_row, k * 16);
#pragma unroll
    for (int n = 0; n < kOtherParts; ++n) {
      multiply_add(pairs[n], a, load_b_by_columns<kStride>(other, n * 8, k * 16));
    }
  }
}

/// sums [16, kSize] += pairs times `other` [kOther, kSize].
template <int kSize>
__device__ void add_products(const Pairs& pairs, const __nv_bfloat16* other,
                             float (&sums)[kSize / 8][4]) {
  constexpr int kStride = kSize + kTilePadding;
#pragma unroll
  for (int k = 0; k < kOther / 16; ++k) {
    const FragmentA a = as_a(pairs[2 * k], pairs[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      multiply_add(sums[n], a, load_b_by_rows<kStride>(other, k * 16, n * 8));
    }
  }
}

/// What the kernels read and write, beside statistics.
struct Tensors {
  const __nv_bfloat16* qkv;
  const __nv_bfloat16* dout;
  __nv_bfloat16* dqkv;
  RowAccess access;
};

/// Rows row and row + 8 of a result; `row` is the lane's first.
template <int kSize>
__device__ void store_rows(const float (&sums)[kSize / 8][4], int64_t row, int64_t rows,
                           int64_t size, int64_t stride, bool by_2, __nv_bfloat16* to) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t own = row + 8 * half;
    if (own >= rows) continue;
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      store_two(sums[n][2 * half], sums[n][2 * half + 1], n * 8 + 2 * t, size, by_2,
                to + own * stride);
    }
  }
}

template <int kSize>
struct Tiles {
  static constexpr int kOwnElements = kOwn * (kSize + kTilePadding);
  static constexpr int kOtherElements = kOther * (kSize + kTilePadding);
  /// Shared memory of a block: two tiles of each side, and two numbers for each row of the other.
  static constexpr int kBytes = 2 * (kOwnElements + kOtherElements) * 2 + 2 * kOther * 4;

  __device__ explicit Tiles(unsigned char* memory)
      : own(reinterpret_cast<__nv_bfloat16*>(memory)),
        own_second(own + kOwnElements),
        other(own_second + kOwnElements),
        other_second(other + kOtherElements),
        log_sum_exp(reinterpret_cast<float*>(other_second + kOtherElements)),
        delta(log_sum_exp + kOther) {}

  __nv_bfloat16 *own, *own_second, *other, *other_second;
  float *log_sum_exp, *delta;
};

/// dq. grid = (ceil(T / kOwn), B H), the longest rows first. Bound: the tensor cores.
template <int kSize>
__global__ void __launch_bounds__(kThreads)
    queries_kernel(AttentionBackward call, Tensors tensors) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Tiles<kSize> tiles(memory);
  const AttentionShape s = call.shape;
  const int64_t size = s.size;
  const HeadOffsets at = head_offsets(s, blockIdx.y);
  const __nv_bfloat16* qkv = tensors.qkv;
  const bool by_8 = tensors.access.by_8;
  const float scale = 1.0F / sqrtf(static_cast<float>(size));
  const int64_t begin = int64_t{gridDim.x - 1 - blockIdx.x} * kOwn;
  const int warp_row = static_cast<int>(threadIdx.x / kWarpSize) * 16;
  const int64_t row = begin + warp_row + threadIdx.x % kWarpSize / 4;
  const int64_t column = 2 * (threadIdx.x % 4);
  load_tile<kOwn, kSize, kThreads>(qkv + at.q, at.qkv_stride, begin, s.seq_len, size, by_8,
                                   tiles.own);
  load_tile<kOwn, kSize, kThreads>(tensors.dout + at.out, at.out_stride, begin, s.seq_len, size,
                                   by_8, tiles.own_second);
  float log_sum_exp[2] = {};  // In powers of two.
  float delta[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t statistics = int64_t{blockIdx.y} * s.seq_len + row + 8 * half;
    if (row + 8 * half >= s.seq_len) continue;
    log_sum_exp[half] = call.log_sum_exp[statistics] * kLog2E;
    delta[half] = call.delta[statistics];
  }
  float sums[kSize / 8][4] = {};
  for (int64_t tile = 0; tile < begin + kOwn && tile < s.seq_len; tile += kOther) {
    __syncthreads();
    load_tile<kOther, kSize, kThreads>(qkv + at.k, at.qkv_stride, tile, s.seq_len, size, by_8,
                                       tiles.other);
    load_tile<kOther, kSize, kThreads>(qkv + at.v, at.qkv_stride, tile, s.seq_len, size, by_8,
                                       tiles.other_second);
    __syncthreads();
    Pairs scores = {};
    Pairs dpairs = {};
    multiply_rows<kSize>(tiles.own, warp_row, tiles.other, scores);
    multiply_rows<kSize>(tiles.own_second, warp_row, tiles.other_second, dpairs);
#pragma unroll
    for (int n = 0; n < kOtherParts; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2;
        const bool is_seen = tile + n * 8 + column + i % 2 <= row + 8 * half;
        const float probability =
            is_seen ? exp2f(scores[n][i] * (scale * kLog2E) - log_sum_exp[half]) : 0.0F;
        dpairs[n][i] = probability * (dpairs[n][i] - delta[half]) * scale;
      }
    }
    add_products<kSize>(dpairs, tiles.other, sums);
  }
  store_rows<kSize>(sums, row, s.seq_len, size, at.qkv_stride, tensors.access.by_2,
                    tensors.dqkv + at.q);
}

/// dk and dv. grid = (ceil(T / kOwn), B K), the keys that most queries see first, and of the
/// heads that share them one after the other.
template <int kSize>
__global__ void __launch_bounds__(kThreads) keys_kernel(AttentionBackward call, Tensors tensors) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Tiles<kSize> tiles(memory);
  const AttentionShape s = call.shape;
  const int64_t size = s.size;
  const int64_t shared_by = s.heads / s.kv_heads;
  const int64_t first_head = blockIdx.y * shared_by;
  const HeadOffsets first = head_offsets(s, first_head);
  const __nv_bfloat16* qkv = tensors.qkv;
  const bool by_8 = tensors.access.by_8;
  const float scale = 1.0F / sqrtf(static_cast<float>(size));
  const int64_t begin = int64_t{blockIdx.x} * kOwn;
  const int warp_row = static_cast<int>(threadIdx.x / kWarpSize) * 16;
  const int64_t row = begin + warp_row + threadIdx.x % kWarpSize / 4;
  const int column = 2 * static_cast<int>(threadIdx.x % 4);
  load_tile<kOwn, kSize, kThreads>(qkv + first.k, first.qkv_stride, begin, s.seq_len, size, by_8,
                                   tiles.own);
  load_tile<kOwn, kSize, kThreads>(qkv + first.v, first.qkv_stride, begin, s.seq_len, size, by_8,
                                   tiles.own_second);
  float key_sums[kSize / 8][4] = {};
  float value_sums[kSize / 8][4] = {};
  for (int64_t head = first_head; head < first_head + shared_by; ++head) {
    const HeadOffsets at = head_offsets(s, head);
    for (int64_t tile = begin; tile < s.seq_len; tile += kOther) {
      __syncthreads();
      load_tile<kOther, kSize, kThreads>(qkv + at.q, at.qkv_stride, tile, s.seq_len, size, by_8,
                                         tiles.other);
      load_tile<kOther, kSize, kThreads>(tensors.dout + at.out, at.out_stride, tile, s.seq_len,
                                         size, by_8, tiles.other_second);
      if (threadIdx.x < kOther) {
        const int64_t query = tile + threadIdx.x;
        const int64_t statistics = head * s.seq_len + query;
        const bool is_there = query < s.seq_len;
        tiles.log_sum_exp[threadIdx.x] = is_there ? call.log_sum_exp[statistics] * kLog2E : 0.0F;
        tiles.delta[threadIdx.x] = is_there ? call.delta[statistics] : 0.0F;
      }
      __syncthreads();
      Pairs pairs = {};
      Pairs dpairs = {};
      multiply_rows<kSize>(tiles.own, warp_row, tiles.other, pairs);
      multiply_rows<kSize>(tiles.own_second, warp_row, tiles.other_second, dpairs);
#pragma unroll
      for (int n = 0; n < kOtherParts; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int other = n * 8 + column + i % 2;
          const int64_t query = tile + other;
          const bool is_seen = query >= row + (i < 2 ? 0 : 8) && query < s.seq_len;
          pairs[n][i] =
              is_seen ? exp2f(pairs[n][i] * (scale * kLog2E) - tiles.log_sum_exp[other]) : 0.0F;
          dpairs[n][i] = pairs[n][i] * (dpairs[n][i] - tiles.delta[other]) * scale;
        }
      }
      add_products<kSize>(pairs, tiles.other_second, value_sums);
      add_products<kSize>(dpairs, tiles.other, key_sums);
    }
  }
  store_rows<kSize>(key_sums, row, s.seq_len, size, first.qkv_stride, tensors.access.by_2,
                    tensors.dqkv + first.k);
  store_rows<kSize>(value_sums, row, s.seq_len, size, first.qkv_stride, tensors.access.by_2,
                    tensors.dqkv + first.v);
}

template <int kSize>
void launch(const AttentionBackward& call, cudaStream_t stream) {
  const AttentionShape& s = call.shape;
  const auto blocks = static_cast<unsigned>(ceil_divide(s.seq_len, kOwn));
  const dim3 queries_grid(blocks, static_cast<unsigned>(s.batch * s.heads));
  const dim3 keys_grid(blocks, static_cast<unsigned>(s.batch * s.kv_heads));
  const Tensors tensors{numbers_of<__nv_bfloat16>(call.qkv),
                        numbers_of<__nv_bfloat16>(call.dout),
                        numbers_of<__nv_bfloat16>(call.dqkv),
                        {fits_packs(call.qkv, s.size, 8) && fits_packs(call.dout, s.size, 8),
                         fits_packs(call.dqkv, s.size, 2)}};
  constexpr int kBytes = Tiles<kSize>::kBytes;
  // More than 48 kB for large heads, which a kernel must be granted first. Costs about 1 us.
  cudaFuncSetAttribute(queries_kernel<kSize>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  cudaFuncSetAttribute(keys_kernel<kSize>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  queries_kernel<kSize><<<queries_grid, kThreads, kBytes, stream>>>(call, tensors);
  keys_kernel<kSize><<<keys_grid, kThreads, kBytes, stream>>>(call, tensors);
}

}  // namespace

void attention_backward(const AttentionBackward& call, cudaStream_t stream) {
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
