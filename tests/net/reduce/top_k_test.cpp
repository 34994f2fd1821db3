#include "net/reduce/top_k.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::net {
namespace {

using Indices = std::vector<uint32_t>;

Indices top_k(std::span<const float> values, size_t k) {
  Indices indices;
  select_top_k(values, k, indices);
  return indices;
}

/// By a sort: largest magnitudes first, of equal ones the lower index.
Indices sorted_top_k(std::span<const float> values, size_t k) {
  Indices all(values.size());
  std::iota(all.begin(), all.end(), 0);
  std::stable_sort(all.begin(), all.end(), [&](uint32_t a, uint32_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  all.resize(std::min(k, all.size()));
  std::sort(all.begin(), all.end());
  return all;
}

const std::vector<std::pair<const char*, std::function<float(uint64_t)>>>& distributions() {
  static const std::vector<std::pair<const char*, std::function<float(uint64_t)>>> all = {
      {"normal", [](uint64_t i) { return static_cast<float>(plans::random_normal(1, 0, i)); }},
      {"zero", [](uint64_t) { return 0.0F; }},
      {"equal", [](uint64_t i) { return i % 2 == 0 ? 0.5F : -0.5F; }},
      {"few levels", [](uint64_t i) { return static_cast<float>(i * 7 % 3); }},
      {"mostly zero", [](uint64_t i) { return i % 97 == 5 ? static_cast<float>(i) : 0.0F; }},
      {"one giant", [](uint64_t i) { return i == 3 ? 1e30F : 1e-3F * static_cast<float>(i); }},
      {"wide",
       [](uint64_t i) { return static_cast<float>(std::exp(20 * plans::random_normal(2, 0, i))); }},
      {"subnormal", [](uint64_t i) { return 1e-45F * static_cast<float>(i % 50); }},
      {"largest",
       [](uint64_t i) { return i % 3 == 0 ? std::numeric_limits<float>::max() : -1.0F; }},
  };
  return all;
}

TEST(SelectTopK, IsExactWithTiesToTheLowerIndex) {
  for (const auto& [name, draw] : distributions()) {
    for (size_t n : {0, 1, 2, 5, 64, 1000, 4097, 20000}) {
      std::vector<float> values(n);
      for (size_t i = 0; i < n; ++i) values[i] = draw(i);
      for (size_t k : {size_t{0}, size_t{1}, size_t{2}, n / 100, n / 3, n - n / 50, n, n + 1}) {
        ASSERT_EQ(top_k(values, k), sorted_top_k(values, k)) << name << " " << k << " of " << n;
      }
    }
  }
}

TEST(SelectTopK, IsExactForEverySmallVector) {
  for (int code = 0; code < 3 * 3 * 3 * 3 * 3; ++code) {
    std::vector<float> values;
    for (int i = 0, rest = code; i < 5; ++i, rest /= 3) {
      values.push_back(static_cast<float>(rest % 3 - 1));
    }
    for (size_t k = 0; k <= 5; ++k) ASSERT_EQ(top_k(values, k), sorted_top_k(values, k));
  }
}

TEST(TopKCount, IsAtLeastOneAndAtMostAll) {
  EXPECT_EQ(top_k_count(0.01, 0), 0u);
  EXPECT_EQ(top_k_count(0.01, 1), 1u);
  EXPECT_EQ(top_k_count(0.01, 100), 1u);
  EXPECT_EQ(top_k_count(0.01, 101), 2u);
  EXPECT_EQ(top_k_count(1.0, 101), 101u);
  EXPECT_EQ(top_k_count(1e-12, 101), 1u);
}

TEST(AreFinite, SeesInfinitiesAndNan) {
  EXPECT_TRUE(are_finite(std::vector<float>{}));
  EXPECT_TRUE(are_finite(std::vector<float>{std::numeric_limits<float>::max(), -1}));
  EXPECT_FALSE(are_finite(std::vector<float>{1, -std::numeric_limits<float>::infinity()}));
  EXPECT_FALSE(are_finite(std::vector<float>{-std::nanf(""), 1}));
}

}  // namespace
}  // namespace skein::net
