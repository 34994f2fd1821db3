#include "plans/elastic/best_assignment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Weights = std::vector<std::vector<int64_t>>;

int64_t total(const Weights& weights, const std::vector<size_t>& pipelines) {
  int64_t sum = 0;
  for (size_t row = 0; row < weights.size(); ++row) sum += weights[row][pipelines[row]];
  return sum;
}

int64_t best_of_all(const Weights& weights) {
  std::vector<size_t> pipelines(weights.front().size());
  std::iota(pipelines.begin(), pipelines.end(), size_t{0});
  int64_t best = std::numeric_limits<int64_t>::min();
  do {
    best = std::max(best, total(weights, pipelines));
  } while (std::next_permutation(pipelines.begin(), pipelines.end()));
  return best;
}

TEST(BestAssignment, IsAsGoodAsTheBestOfAllPermutations) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    const size_t rows = 1 + rng.below(5);
    Weights weights(rows, std::vector<int64_t>(rows + rng.below(3)));
    const uint64_t most = seed % 2 == 0 ? 4 : 1000;  // Small weights have many ties.
    for (std::vector<int64_t>& row : weights) {
      for (int64_t& weight : row) weight = static_cast<int64_t>(rng.below(most)) - 2;
    }
    const std::vector<size_t> pipelines = best_assignment(weights);
    ASSERT_EQ(pipelines.size(), rows);
    EXPECT_EQ(std::set<size_t>(pipelines.begin(), pipelines.end()).size(), rows) << "seed " << seed;
    EXPECT_EQ(total(weights, pipelines), best_of_all(weights)) << "seed " << seed;
  }
}

TEST(BestAssignment, TakesTheLargestWeightsThatItPromises) {
  constexpr int64_t kMost = (int64_t{1} << 60) / 3;
  const Weights weights = {{kMost, -kMost, 0}, {kMost, 1, -kMost}, {-kMost, kMost, kMost}};
  EXPECT_EQ(best_assignment(weights), (std::vector<size_t>{0, 1, 2}));
}

TEST(BestAssignment, OfNothingIsNothing) { EXPECT_TRUE(best_assignment({}).empty()); }

}  // namespace
}  // namespace skein::plans
