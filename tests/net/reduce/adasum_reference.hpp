#pragma once

#include <bit>
#include <cstddef>
#include <vector>

namespace skein::net {

/// The operator as the paper writes it, on one tensor.
inline std::vector<double> adasum_of(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  std::vector<double> result(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    result[i] = (aa > 0 ? 1 - ab / (2 * aa) : 1) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 1) * b[i];
  }
  return result;
}

/// Extra ranks first, then the binary tree of neighbours; in float64 all the way.
inline std::vector<double> adasum_reference(const std::vector<std::vector<float>>& values) {
  std::vector<std::vector<double>> tree;
  for (const std::vector<float>& each : values) tree.emplace_back(each.begin(), each.end());
  const size_t inner = std::bit_floor(tree.size());
  for (size_t i = inner; i < tree.size(); ++i)
    tree[i - inner] = adasum_of(tree[i - inner], tree[i]);
  for (size_t level = 1; level < inner; level *= 2) {
    for (size_t i = 0; i < inner; i += 2 * level) tree[i] = adasum_of(tree[i], tree[i + level]);
  }
  return tree[0];
}

}  // namespace skein::net
