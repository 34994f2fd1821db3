#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace skein::plans {

/// Weights of replicas whose weights are `version` steps old or young. A version that is k behind
/// the newest gets `decay`^k; replicas of one version share it; then all are scaled to sum to 1.
/// Source: P-Reduce, SIGMOD'21, dynamic weights.
///
/// `versions`  any order, not empty.
/// `decay`     in (0, 1); nearer to 0 trusts old replicas less.
/// Returns     [versions] > 0, sum 1. Not doubly stochastic unless all versions are equal.
/// Cost        O(n log n).
std::vector<double> staleness_weights(std::span<const uint64_t> versions, double decay);

}  // namespace skein::plans
