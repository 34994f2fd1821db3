#pragma once

// Runs CUDA kernels on the host: what nvcc would define for them, as plain C++. Included before a
// translated source (translate.py).

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#undef __shared__
#define __shared__ static  // One block runs at a time, its threads share what a function keeps.
#undef __global__
#define __global__
#undef __launch_bounds__
#define __launch_bounds__(...)
#define cudaFuncSetAttribute(...) ((void)0)
#define __cvta_generic_to_shared(pointer) (pointer)

namespace emulated {

struct Place {
  dim3 thread, block, grid, threads;
};
/// Those of the thread that runs.
const Place& place();

/// Runs all blocks, one after the other, each thread as a fiber of its own. Ends the process with a
/// message when threads of a warp or a block do not meet where they must.
void launch(dim3 grid, dim3 block, int64_t shared_bytes, cudaStream_t stream,
            const std::function<void()>& thread);
unsigned char* dynamic_shared();

/// All threads of the block that have not ended meet.
void meet_block();
/// All 32 lanes of the warp meet; each leaves `bytes` bytes at `mine` for the others. The result,
/// at lane * kExchangeBytes, is valid until the lane's next meeting.
constexpr int kExchangeBytes = 64;
const unsigned char* meet_warp(const void* mine, int bytes);
/// The running thread's lane in its warp.
int lane();

template <class T>
T shuffle(T value, int from) {
  T result;
  std::memcpy(&result, meet_warp(&value, sizeof value) + from * kExchangeBytes, sizeof result);
  return result;
}

}  // namespace emulated

#define threadIdx (::emulated::place().thread)
#define blockIdx (::emulated::place().block)
#define gridDim (::emulated::place().grid)
#define blockDim (::emulated::place().threads)

inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline void __syncthreads() { ::emulated::meet_block(); }
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return ::emulated::shuffle(value, from);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ::emulated::shuffle(value, ::emulated::lane() ^ mask);
}
