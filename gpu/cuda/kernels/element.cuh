#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu/numbers.hpp"

/// Numbers of a tensor, which kernels compute with in float32 whatever they are in memory.
namespace skein::gpu::kernels {

__device__ inline float load(const float* at) { return *at; }
__device__ inline float load(const __nv_bfloat16* at) { return __bfloat162float(*at); }
__device__ inline void store(float value, float* at) { *at = value; }
__device__ inline void store(float value, __nv_bfloat16* at) { *at = __float2bfloat16_rn(value); }

/// Numbers that a thread takes at once where they are aligned: 16 bytes.
template <class T>
constexpr int kWide = 16 / sizeof(T);

/// Neighbours that are read and written in one instruction, from an address aligned to all of them.
/// More than 16 bytes are several instructions.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T) < 16 ? kWidth * sizeof(T) : 16) Pack {
  T numbers[kWidth];
};
template <class T, int kWidth>
__device__ inline void load_pack(const T* at, float (&values)[kWidth]) {
  const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(at);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = load(&pack.numbers[i]);
}
template <class T, int kWidth>
__device__ inline void store_pack(const float (&values)[kWidth], T* at) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) store(values[i], &pack.numbers[i]);
  *reinterpret_cast<Pack<T, kWidth>*>(at) = pack;
}

template <class T>
const T* numbers_of(ConstNumbers numbers) {
  return static_cast<const T*>(numbers.data());
}
template <class T>
T* numbers_of(Numbers numbers) {
  return static_cast<T*>(numbers.data());
}

inline bool is_float32(ConstNumbers numbers) { return numbers.type() == NumberType::kFloat32; }

/// Whether 16 bytes can be taken at once. True of a null.
inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}
/// Whether rows of `columns` numbers, or all of one row, can be taken `width`, 16 bytes, at a time.
inline bool fits_packs(ConstNumbers numbers, int64_t columns, int width) {
  return columns % width == 0 && is_aligned(numbers.data());
}

}  // namespace skein::gpu::kernels
