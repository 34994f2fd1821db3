#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/cuda/kernels/attention.hpp"

/// What is done to each row apart, and needs its columns' numbers: halves of a row belong together.
namespace skein::gpu::kernels {

/// Numbers of one call have one type, of b bytes each.
///
/// y [rows, width] = gate * logistic(gate) * value, of x [rows, 2 width], gates first.
/// Bytes: 3 b rows width; FLOPs: about 5 rows width and a special function.
void swiglu_forward(ConstNumbers x, Numbers y, int64_t rows, int64_t width, cudaStream_t stream);

/// Overwrites dx [rows, 2 width]. Bytes: 5 b rows width; FLOPs: about 11 and a special function.
void swiglu_backward(ConstNumbers x, ConstNumbers dy, Numbers dx, int64_t rows, int64_t width,
                     cudaStream_t stream);

/// Turns q and k of qkv [B, T, (H + 2 K) D] as `Ops::Rotation` says. Bytes: 2 b B T (H + K) D, and
/// 4 T D of `turns` for each sample unless a cache has it; FLOPs: 3 B T (H + K) D.
struct Rotation {
  AttentionShape shape;
  const float* turns = nullptr;
  bool is_opposite = false;
  Numbers qkv;
};
void rotate(const Rotation& rotation, cudaStream_t stream);

}  // namespace skein::gpu::kernels
