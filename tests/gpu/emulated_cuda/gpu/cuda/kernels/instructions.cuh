#pragma once

// Stands in for the product's file of this name: what the instructions do, by their specification
// (PTX ISA, mma.m16n8k16 and ldmatrix), from all lanes' registers.

#include <cuda_bf16.h>

namespace skein::gpu::kernels {

/// Element `half` (0 low, 1 high) of a register of two bfloat16.
inline float emulated_element(unsigned both, int half) {
  return __bfloat162float(
      __ushort_as_bfloat16(static_cast<unsigned short>(half == 0 ? both & 0xFFFFU : both >> 16)));
}

inline void instruction_mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  struct Registers {
    unsigned a[4], b[2];
  } mine;
  std::memcpy(mine.a, a, sizeof mine.a);
  std::memcpy(mine.b, b, sizeof mine.b);
  const unsigned char* all = ::emulated::meet_warp(&mine, sizeof mine);
  auto of = [all](int lane) {
    Registers r;
    std::memcpy(&r, all + lane * ::emulated::kExchangeBytes, sizeof r);
    return r;
  };
  // a0, a1: rows 0..7; a1, a3: rows 8..15; a2, a3: columns 8..15. b1: rows 8..15.
  auto a_at = [&](int m, int k) {
    return emulated_element(of(m % 8 * 4 + k % 8 / 2).a[m / 8 + k / 8 * 2], k % 2);
  };
  auto b_at = [&](int k, int n) { return emulated_element(of(n * 4 + k % 8 / 2).b[k / 8], k % 2); };
  const int group = ::emulated::lane() / 4, in_group = ::emulated::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int m = group + (i < 2 ? 0 : 8), n = 2 * in_group + i % 2;
    for (int k = 0; k < 16; ++k) c[i] += a_at(m, k) * b_at(k, n);
  }
}

inline void instruction_ldmatrix_transposed(unsigned (&to)[2], const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) __builtin_trap();
  const unsigned char* all = ::emulated::meet_warp(&row, sizeof row);
  const int lane = ::emulated::lane();
  auto element = [all, lane](int matrix, int from_row) -> unsigned {
    const unsigned short* elements;
    std::memcpy(&elements, all + (matrix * 8 + from_row) * ::emulated::kExchangeBytes,
                sizeof elements);
    return elements[lane / 4];
  };
  for (int matrix = 0; matrix < 2; ++matrix) {
    to[matrix] = element(matrix, lane % 4 * 2) | element(matrix, lane % 4 * 2 + 1) << 16;
  }
}

}  // namespace skein::gpu::kernels
