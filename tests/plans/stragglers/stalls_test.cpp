#include "plans/stragglers/stalls.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

std::deque<StepRatios> steps_of(const std::vector<double>& ratios) {
  std::deque<StepRatios> steps;
  for (const double ratio : ratios) steps.push_back({{WorkerId{7}, ratio}});
  return steps;
}

/// The ratios of the only worker; 1 where it does not stall.
std::vector<double> stalls(const std::vector<double>& ratios) {
  std::vector<double> all;
  for (const StepRatios& step : stalls_of(steps_of(ratios))) {
    all.push_back(step.empty() ? 1 : step.at(WorkerId{7}));
  }
  return all;
}

TEST(Stalls, AStepThatTakesFarLongerThanThoseAroundItIsOne) {
  EXPECT_EQ(stalls({2, 2, 2, 20, 2, 2, 2, 2}), (std::vector<double>{1, 1, 1, 10, 1, 1, 1, 1}));
  EXPECT_EQ(stalls({5, 1, 1, 1, 1}), (std::vector<double>{5, 1, 1, 1, 1}));
  EXPECT_EQ(stalls({1, 1.4, 1, 1.5}), (std::vector<double>(4, 1))) << "noise is none";
}

TEST(Stalls, WhatLastsIsNone) {
  EXPECT_EQ(stalls(std::vector<double>(8, 3)), std::vector<double>(8, 1));
  EXPECT_EQ(stalls({1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3}), std::vector<double>(12, 1))
      << "a worker that has become slow";
}

TEST(Stalls, WorkersCountByThemselvesAndOnlyWhereTheyTookPart) {
  std::deque<StepRatios> steps = steps_of({1, 1, 1, 1, 1});
  steps[2][WorkerId{9}] = 4;
  steps[1][WorkerId{7}] = 4;
  const std::vector<StepRatios> found = stalls_of(steps);
  EXPECT_EQ(found[1], (StepRatios{{WorkerId{7}, 4}}));
  EXPECT_TRUE(found[2].empty()) << "there is nothing to compare it with";
  EXPECT_TRUE(stalls_of({}).empty());
}

TEST(Stalls, ADeviceIsSlowerByTheRatioOfItsWorker) {
  ClusterSpec cluster;
  cluster.devices.resize(2);
  cluster.devices[0].speed = 1;
  cluster.devices[1].speed = 0.5;
  const std::vector<ClusterSpec> steps =
      disturbed_clusters(cluster, {WorkerId{3}, WorkerId{7}}, {{}, {{WorkerId{7}, 2}}});
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0], cluster);
  EXPECT_EQ(steps[1].devices[0].speed, 1);
  EXPECT_EQ(steps[1].devices[1].speed, 0.25);
}

}  // namespace
}  // namespace skein::plans
