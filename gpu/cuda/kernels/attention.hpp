#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/cuda/launch_shape.hpp"
#include "gpu/numbers.hpp"

namespace skein::gpu::kernels {

/// Causal attention over qkv [B, T, (H + 2 K) D] with heads of D <= 256. Neither form has the
/// [T, T] scores in memory. Numbers of one call have one type, of b bytes each. With
/// N = B H T^2 / 2 pairs of a query and a key, and B T (2 H + 2 K) D numbers that are looked at:
///   forward   4 D N FLOPs; b bytes for each number and 4 B H T.
///   backward 14 D N FLOPs: seven products, as dq and (dk, dv) each compute the scores again, so
///            that nothing is added up atomically; 9/4 b bytes for each number. Five products would
///            be the least.
struct AttentionForward {
  AttentionShape shape;
  ConstNumbers qkv;
  Numbers out;                   // [B, T, H D], overwritten.
  float* log_sum_exp = nullptr;  // [B, H, T] of the scaled scores, overwritten.
};
struct AttentionBackward {
  AttentionShape shape;
  ConstNumbers qkv, out;
  const float* log_sum_exp = nullptr;
  ConstNumbers dout;
  float* delta = nullptr;  // [B, H, T], overwritten: dout . out, summed over the head.
  Numbers dqkv;            // Has qkv's shape; overwritten.
};

/// Attention of bfloat16 numbers: tensor cores, float32 sums and softmax (FlashAttention-2,
/// section 3). Heads of at most kTensorCoreHeadMax.
void attention_forward(const AttentionForward& call, cudaStream_t stream);
void attention_backward(const AttentionBackward& call, cudaStream_t stream);

/// Of either type, computed in float32 without tensor cores, also for larger heads: tens of times
/// slower.
void attention_forward_exact(const AttentionForward& call, cudaStream_t stream);
void attention_backward_exact(const AttentionBackward& call, cudaStream_t stream);

/// Attention of T positions of one sequence with a cache that has the `length` before them, as
/// `Ops::KeyValueCache`. b bytes for each number of the cache that is looked at, for each head of
/// queries and each of the T positions; 4 D FLOPs for each pair of a query and a key.
struct CachedAttention {
  AttentionShape shape;  // A batch of 1.
  ConstNumbers qkv;
  Numbers keys, values;  // [K, capacity, D]
  int64_t capacity = 0, length = 0;
  Numbers out;  // [T, H D]
};
/// Overwrites positions [length, length + T) of the cache. Bytes: 4 b T K D.
void append_to_cache(const CachedAttention& call, cudaStream_t stream);
/// Overwrites out. Of either type, computed in float32 without tensor cores.
void attend_to_cache(const CachedAttention& call, cudaStream_t stream);

/// Overwrites delta, for both backwards.
void attention_delta(const AttentionBackward& call, cudaStream_t stream);

}  // namespace skein::gpu::kernels
