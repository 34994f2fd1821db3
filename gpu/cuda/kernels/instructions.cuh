#pragma once

/// Instructions that C++ has no word for, one function each. tests/gpu/emulated_cuda has another
/// file of this name, so nothing else may use `asm`.
namespace skein::gpu::kernels {

/// c += a b, operands as tensor_core.cuh says (PTX ISA, mma.m16n8k16).
__device__ inline void instruction_mma(float (&c)[4], const unsigned (&a)[4],
                                       const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Two 8 x 8 matrices of 16-bit elements, transposed. `row` is that of the lane: lanes 0 .. 7 name
/// the rows of the first, 8 .. 15 of the second; 16 bytes each, aligned to 16, in shared memory.
__device__ inline void instruction_ldmatrix_transposed(unsigned (&to)[2], const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(address)
               : "memory");
}

}  // namespace skein::gpu::kernels
