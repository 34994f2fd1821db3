#pragma once

#include <cstdint>

#include "bench/policies/comparison.hpp"

namespace skein::bench {

/// Larger batches by more ranks (Maleki et al., MLSys'21): 1 to 64 ranks, each with
/// `options.batch` samples a step, whose gradients are put together by sum, mean or Adasum before
/// the optimizer, or whose own optimizers' effects by Adasum behind it. Prints, after the same
/// number of samples, the held-out loss with the learning rate that is best for one rank, which is
/// what Adasum promises to keep, and with the rate that is best for each; and the samples to the
/// target. Adasum is taken of each tensor for itself.
void print_large_batches(const TaskMaker& make_task, const ComparisonOptions& options,
                         uint64_t samples);

}  // namespace skein::bench
