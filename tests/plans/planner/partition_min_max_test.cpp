#include "plans/planner/partition_min_max.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

double slowest(const std::vector<LayerRange>& ranges, const std::vector<double>& cost,
               const std::vector<double>& speed) {
  double worst = 0;
  for (size_t p = 0; p < ranges.size(); ++p) {
    double sum = 0;
    for (int64_t l = ranges[p].begin; l < ranges[p].end; ++l) sum += cost[static_cast<size_t>(l)];
    worst = std::max(worst, sum / speed[p]);
  }
  return worst;
}

/// Tries every way to cut.
double best_by_force(const std::vector<double>& cost, const std::vector<double>& speed) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<LayerRange> ranges;
  const auto layers = static_cast<int64_t>(cost.size());
  std::function<void(int64_t)> place = [&](int64_t begin) {
    if (ranges.size() + 1 == speed.size()) {
      ranges.push_back({begin, layers});
      if (begin < layers) best = std::min(best, slowest(ranges, cost, speed));
      ranges.pop_back();
      return;
    }
    for (int64_t end = begin + 1; end < layers; ++end) {
      ranges.push_back({begin, end});
      place(end);
      ranges.pop_back();
    }
  };
  place(0);
  return best;
}

TEST(PartitionMinMax, IsAsGoodAsTryingEveryCut) {
  Rng rng(3);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t layers = 1 + rng.below(8);
    const size_t workers = 1 + rng.below(layers);
    std::vector<double> cost(layers), speed(workers);
    for (double& c : cost) c = static_cast<double>(rng.below(10));
    for (double& s : speed) s = 0.25 * static_cast<double>(1 + rng.below(8));
    const auto ranges = partition_min_max(cost, speed);
    ASSERT_TRUE(ranges.ok());
    int64_t next = 0;
    for (const LayerRange& range : *ranges) {
      EXPECT_EQ(range.begin, next);
      EXPECT_GT(range.end, range.begin);
      next = range.end;
    }
    EXPECT_EQ(next, static_cast<int64_t>(layers));
    EXPECT_DOUBLE_EQ(slowest(*ranges, cost, speed), best_by_force(cost, speed));
  }
}

TEST(PartitionMinMax, GivesTheSlowWorkerFewerLayers) {
  const std::vector<double> cost(9, 1.0), speed = {1.0, 0.5};
  const auto ranges = partition_min_max(cost, speed);
  EXPECT_EQ((*ranges)[0].size(), 6);
  EXPECT_EQ((*ranges)[1].size(), 3);
}

TEST(PartitionMinMax, RefusesWhatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  using Numbers = std::vector<double>;
  EXPECT_FALSE(partition_min_max(Numbers{1, 1}, Numbers{}).ok());
  EXPECT_FALSE(partition_min_max(Numbers{1, 1}, Numbers{1, 1, 1}).ok());
  EXPECT_FALSE(partition_min_max(Numbers{1, -1}, Numbers{1}).ok());
  EXPECT_FALSE(partition_min_max(Numbers{1, nan}, Numbers{1}).ok());
  EXPECT_FALSE(partition_min_max(Numbers{1, 1}, Numbers{0}).ok());
}

}  // namespace
}  // namespace skein::plans
