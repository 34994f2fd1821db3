#pragma once

#include "gpu/host/thread_pool.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// Causal attention of `Ops`, one (sample, head) pair after the other on each thread, in the
/// backward one (sample, head of keys) pair, a block of query rows at a time: the scores held at
/// once are a block by T per thread.
void attention_forward(ThreadPool& pool, const Ops::Attention& shape, const float* qkv, float* out,
                       float* log_sum_exp);
void attention_backward(ThreadPool& pool, const Ops::Attention& shape, const float* qkv,
                        const float* out, const float* log_sum_exp, const float* dout, float* dqkv);

}  // namespace skein::gpu
