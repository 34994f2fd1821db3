#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu/cuda/kernels/instructions.cuh"
#include "gpu/cuda/kernels/reduce.cuh"

/// bfloat16 products of 16 x 8 x 16 by one warp (PTX ISA, mma.m16n8k16), and how their operands lie
/// in registers. With g = lane / 4 and t = lane % 4, a lane holds
///   of A [16, 16]  rows g and g + 8, columns 2t, 2t + 1 and 2t + 8, 2t + 9
///   of B [16, 8]   rows 2t, 2t + 1 and 2t + 8, 2t + 9, column g
///   of C [16, 8]   rows g (c[0], c[1]) and g + 8 (c[2], c[3]), columns 2t and 2t + 1
namespace skein::gpu::kernels {

struct FragmentA {
  unsigned r[4];
};
struct FragmentB {
  unsigned r[2];
};

/// Rows of tiles in shared memory are this much longer than their contents, so that the lanes of a
/// warp, which read from 8 rows at once, use all banks; rows stay aligned to 16 bytes.
constexpr int kTilePadding = 8;

/// c += a b.
__device__ inline void multiply_add(float (&c)[4], const FragmentA& a, const FragmentB& b) {
  instruction_mma(c, a.r, b.r);
}

__device__ inline unsigned two_at(const __nv_bfloat16* pointer) {
  return *reinterpret_cast<const unsigned*>(pointer);
}

/// A[m][k] = tile[row + m][column + k].
template <int kStride>
__device__ inline FragmentA load_a(const __nv_bfloat16* tile, int row, int column) {
  const int g = threadIdx.x % kWarpSize / 4;
  const int t = threadIdx.x % 4;
  const __nv_bfloat16* at = tile + (row + g) * kStride + column + 2 * t;
  return {{two_at(at), two_at(at + 8 * kStride), two_at(at + 8), two_at(at + 8 * kStride + 8)}};
}

/// B[k][n] = tile[row + n][column + k]: the tile holds the columns of B as rows.
template <int kStride>
__device__ inline FragmentB load_b_by_columns(const __nv_bfloat16* tile, int row, int column) {
  const int g = threadIdx.x % kWarpSize / 4;
  const int t = threadIdx.x % 4;
  const __nv_bfloat16* at = tile + (row + g) * kStride + column + 2 * t;
  return {{two_at(at), two_at(at + 8)}};
}

/// B[k][n] = tile[row + k][column + n]. `column` is a multiple of 8.
template <int kStride>
__device__ inline FragmentB load_b_by_rows(const __nv_bfloat16* tile, int row, int column) {
  // Lanes 0 .. 15 name the rows of two 8 x 8 matrices, which arrive transposed.
  const __nv_bfloat16* at = tile + (row + threadIdx.x % 16) * kStride + column;
  FragmentB b;
  instruction_ldmatrix_transposed(b.r, at);
  return b;
}

__device__ inline unsigned round_two(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&both);
}

/// Two neighbouring results [16, 8] as the left operand of the next product.
__device__ inline FragmentA as_a(const float (&left)[4], const float (&right)[4]) {
  return {{round_two(left[0], left[1]), round_two(left[2], left[3]), round_two(right[0], right[1]),
           round_two(right[2], right[3])}};
}

/// The largest value among the four lanes that share a row of a result. All of them get it.
__device__ inline float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ inline float row_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

/// tile [kRows][kSize] := rows [begin, begin + kRows) of a matrix; zeros past its `rows` rows and
/// `size` columns. `by_8`: rows start at multiples of 16 bytes and size % 8 == 0.
template <int kRows, int kSize, int kThreads>
__device__ inline void load_tile(const __nv_bfloat16* from, int64_t stride, int64_t begin,
                                 int64_t rows, int64_t size, bool by_8, __nv_bfloat16* tile) {
  constexpr int kEights = kSize / 8;
  constexpr int kStride = kSize + kTilePadding;
#pragma unroll 4
  for (int i = threadIdx.x; i < kRows * kEights; i += kThreads) {
    const int row = i / kEights;
    const int column = i % kEights * 8;
    const bool is_there = begin + row < rows;
    const __nv_bfloat16* at = from + (begin + row) * stride + column;
    __nv_bfloat16* to = tile + row * kStride + column;
    if (is_there && by_8 && column < size) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(at);
      continue;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      to[k] = is_there && column + k < size ? at[k] : __float2bfloat16_rn(0.0F);
    }
  }
}

/// Columns `column` and the next one, of `size`, of a row. `by_2`: they lie in one word.
__device__ inline void store_two(float low, float high, int column, int64_t size, bool by_2,
                                 __nv_bfloat16* row) {
  if (by_2 && column + 1 < size) {
    *reinterpret_cast<unsigned*>(row + column) = round_two(low, high);
    return;
  }
  if (column < size) row[column] = __float2bfloat16_rn(low);
  if (column + 1 < size) row[column + 1] = __float2bfloat16_rn(high);
}

/// How the rows of one call lie in memory.
struct RowAccess {
  bool by_8;  // 16 bytes at once, where they are read.
  bool by_2;  // 4 bytes at once, where they are written.
};

}  // namespace skein::gpu::kernels
