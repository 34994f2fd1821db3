#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace skein::gpu::kernels {

/// Causal attention over qkv [B, T, 3C] with heads of D = C / H <= 256. Neither form has the
/// [T, T] scores in memory. With N = B H T^2 / 2 pairs of a query and a key:
///   forward   4 D N FLOPs; 16 B T C bytes and 4 B H T.
///   backward 14 D N FLOPs: seven products, as dq and (dk, dv) each compute the scores again, so
///            that nothing is added up atomically; 36 B T C bytes. Five would be the least.
struct AttentionShape {
  int64_t batch = 0, seq_len = 0, heads = 0, channels = 0;
};
struct AttentionForward {
  AttentionShape shape;
  const float* qkv = nullptr;
  float* out = nullptr;          // [B, T, C], overwritten.
  float* log_sum_exp = nullptr;  // [B, H, T] of the scaled scores, overwritten.
};
struct AttentionBackward {
  AttentionShape shape;
  const float* qkv = nullptr;
  const float* out = nullptr;
  const float* log_sum_exp = nullptr;
  const float* dout = nullptr;
  float* delta = nullptr;  // [B, H, T], overwritten: dout . out, summed over the head.
  float* dqkv = nullptr;   // [B, T, 3C], overwritten.
};

/// bfloat16 products by tensor cores, float32 sums and softmax (FlashAttention-2, section 3). Heads
/// of at most kTensorCoreHeadMax.
void attention_forward(const AttentionForward& call, cudaStream_t stream);
void attention_backward(const AttentionBackward& call, cudaStream_t stream);

/// All in float32 without tensor cores, for comparisons and larger heads: tens of times slower.
void attention_forward_exact(const AttentionForward& call, cudaStream_t stream);
void attention_backward_exact(const AttentionBackward& call, cudaStream_t stream);

/// Overwrites delta, for both backwards.
void attention_delta(const AttentionBackward& call, cudaStream_t stream);

}  // namespace skein::gpu::kernels
