#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "net/reduce/exchange.hpp"

namespace skein::net {

/// What the operator needs to know of two vectors a and b.
struct AdasumDots {
  double ab = 0;  // Dot product.
  double aa = 0;  // Squared norm of a.
  double bb = 0;
};
/// Adds those of a and b, which have one size, in float64 and in an order that depends on it only.
void add_dots(std::span<const float> a, std::span<const float> b, AdasumDots& dots);

struct AdasumFactors {
  double a = 1;
  double b = 1;
};
/// Adasum(a, b) = (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b: the sum of orthogonal vectors,
/// the mean of equal ones. The factor of a vector that is as good as 0 is 1.
AdasumFactors adasum_factors(const AdasumDots& dots);

/// Adasum of `count` vectors, of one tensor, is the sum of `result[i]` times vector i, as the tree
/// only ever scales and adds: this is found from their dot products alone. The tree is that of
/// `adasum` over as many ranks.
///
/// `gram`  [count, count]  dot products; symmetric. `count` >= 1.
std::vector<double> adasum_coefficients(std::span<const double> gram, size_t count);

/// own := factors.a * own + factors.b * other, in float64, rounded once.
void combine(const AdasumFactors& factors, std::span<float> own, std::span<const float> other);

/// values := Adasum over the ranks, tensor by tensor. Source: Maleki et al., MLSys'21: vector
/// halving with distance doubling, so each rank works on n / P floats at the last level.
/// The operator is not associative; its order is part of the result. With p the largest power of
/// two <= P, rank i < P - p first takes in rank p + i; then the p ranks form a binary tree of
/// neighbours, the lower ranks on the left.
/// Differs: any number of ranks. An extra rank shares the work of its partner, half each, and gets
/// the result at the end.
///
/// `values`          [n]  the same n on every rank; n may be 0.
/// `tensor_floats`        sizes of the tensors that tile `values`, the same on every rank.
/// InvalidArgument        before anything is sent, if they do not tile `values`.
/// Cost                   2 n (p - 1) / p floats sent by each rank, 2 n more for those with an
///                        extra one; log2(p)^2 small messages; n / 2 floats of memory.
absl::Status adasum(Exchange& exchange, std::span<float> values,
                    std::span<const size_t> tensor_floats);

}  // namespace skein::net
