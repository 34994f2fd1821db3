#include "plans/sync/partial_reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plans/sync/staleness.hpp"
#include "policy_driver.hpp"

namespace skein::plans {
namespace {

TEST(PartialReduce, OwesNothingWhateverHappens) {
  for (const IsolationGuard guard :
       {IsolationGuard::kLastGroups, IsolationGuard::kSinceConnected}) {
    for (const auto& [layout, options] : driver_settings()) {
      const uint32_t group_size = options.seed % 4 == 0 ? 20 : 2 + options.seed % 2;
      PartialReducePolicy policy(layout, {group_size, {}, guard});
      PolicyDriver driver(policy, layout, options);
      ASSERT_TRUE(driver.run()) << layout.pipelines << " x " << layout.stages << " " << group_size;
    }
  }
}

TEST(PartialReduce, DynamicWeightsAreAverages) {
  for (const auto& [layout, options] :
       driver_settings({.events = 20'000, .equal_weights = false})) {
    PartialReducePolicy policy(layout, {3, 0.6});
    PolicyDriver driver(policy, layout, options);
    ASSERT_TRUE(driver.run());
  }
}

TEST(PartialReduce, GroupsHaveTheirSizeWhileNobodyLeaves) {
  const PipelineLayout layout{8, 2};
  PartialReducePolicy policy(layout, {3, {}});
  PolicyDriver driver(policy, layout, {.coupled = true});
  driver.on_start = [](const GroupStart& start) { EXPECT_EQ(start.members.size(), 3u); };
  ASSERT_TRUE(driver.run());
}

TEST(PartialReduce, MixesAndKeepsTheMean) {
  const PipelineLayout layout{9, 2};
  PartialReducePolicy policy(layout, {3, {}});
  PolicyDriver driver(policy, layout, {.learns = false});
  const double mean = driver.mean(1);
  ASSERT_TRUE(driver.run());
  EXPECT_LT(driver.spread(1), 1e-6);
  EXPECT_NEAR(driver.mean(1), mean, 1e-6);
}

/// Most groups that it takes to connect all pipeline replicas: from any group on, or,
/// kSinceConnected, from the group after the last connection.
uint64_t groups_until_connected(uint32_t pipelines, PartialReduceOptions form) {
  const PipelineLayout layout{pipelines, 1};
  PartialReducePolicy policy(layout, form);
  PolicyDriver driver(policy, layout, {.seed = pipelines, .slow_share = 0.4});
  std::vector<std::vector<uint32_t>> groups;
  driver.on_start = [&](const GroupStart& start) {
    groups.emplace_back();
    for (const GroupMember& m : start.members) groups.back().push_back(m.replica.value);
  };
  EXPECT_TRUE(driver.run());
  if (form.guard == IsolationGuard::kSinceConnected) {
    Components components(std::vector<bool>(pipelines, true));
    uint64_t count = 0, longest = 0;
    for (const auto& group : groups) {
      components.connect(group);
      longest = std::max(longest, ++count);
      if (components.count() > 1) continue;
      components.reset();
      count = 0;
    }
    return longest;
  }
  uint64_t longest = 0;
  for (size_t begin = 0; begin + 1000 < groups.size(); ++begin) {
    Components components(std::vector<bool>(pipelines, true));
    uint64_t count = 0;
    while (components.count() > 1) components.connect(groups[begin + count++]);
    longest = std::max(longest, count);
  }
  return longest;
}

TEST(PartialReduce, ConnectsAllPipelinesInTheStatedNumberOfGroups) {
  for (const uint32_t pipelines : {2u, 5u, 8u, 17u}) {
    EXPECT_LE(groups_until_connected(pipelines, {2, {}, IsolationGuard::kLastGroups}),
              2 * (pipelines - 1) - 1)
        << pipelines;
    for (const uint32_t size : {2u, 3u, 5u}) {
      if (size > pipelines) continue;
      const uint64_t connecting = (pipelines - 1 + size - 2) / (size - 1);
      EXPECT_LE(groups_until_connected(pipelines, {size, {}, IsolationGuard::kSinceConnected}),
                connecting + pipelines - 1)
          << pipelines << " " << size;
    }
  }
}

TEST(PartialReduce, GoesOnWithFewerThanAGroup) {
  PartialReducePolicy policy({3, 1}, {3, {}});
  EXPECT_TRUE(policy.on_ready({{0}, 0}, 1).starts.empty());
  EXPECT_TRUE(policy.on_ready({{1}, 0}, 2).starts.empty());
  const GroupDecisions two = policy.on_membership({2, false, 0}, 3);
  ASSERT_EQ(two.starts.size(), 1u);
  EXPECT_EQ(two.starts[0].members.size(), 2u);
  policy.on_membership({1, false, 0}, 4);
  policy.on_group_end({0, false}, 5);
  const GroupDecisions one = policy.on_ready({{0}, 1}, 6);
  ASSERT_EQ(one.starts.size(), 1u);
  EXPECT_EQ(one.starts[0].average, Average::kLocal);
}

TEST(PartialReduce, StaleMembersWeighLess) {
  PartialReducePolicy policy({3, 1}, {2, 0.5});
  policy.on_ready({{0}, 0}, 1);
  policy.on_ready({{1}, 0}, 2);
  policy.on_group_end({0, true}, 3);
  policy.on_ready({{0}, 1}, 4);
  const GroupDecisions decisions = policy.on_ready({{2}, 0}, 5);
  ASSERT_EQ(decisions.starts.size(), 1u);
  EXPECT_EQ(decisions.starts[0].staleness, 1u);
  EXPECT_NEAR(decisions.starts[0].members[0].weight, 2.0 / 3, 1e-12);
  EXPECT_NEAR(decisions.starts[0].members[1].weight, 1.0 / 3, 1e-12);
}

/// As in a round in which one is given samples again that somebody has lost. Steps that it has done
/// alone meanwhile, with the last claims in flight, count.
TEST(PartialReduce, WhoComesBackHasTheWeightsThatItLeftWith) {
  for (const uint64_t alone : {0, 2}) {
    PartialReducePolicy policy({2, 1}, {2, {}});
    policy.on_ready({{0}, 0}, 1);
    policy.on_ready({{1}, 0}, 2);
    policy.on_group_end({0, true}, 3);
    policy.on_membership({1, false, 1}, 4);
    for (uint64_t step = 1; step < 4; ++step) policy.on_ready({{0}, step}, 5);
    policy.on_membership({1, true, 1 + alone}, 6);
    policy.on_ready({{0}, 4}, 7);
    const GroupDecisions met = policy.on_ready({{1}, 1 + alone}, 8);
    ASSERT_EQ(met.starts.size(), 1u);
    ASSERT_EQ(met.starts[0].members.size(), 2u);
    EXPECT_EQ(met.starts[0].staleness, 3 - alone);
    policy.on_group_end({met.starts[0].number, true}, 9);
    // In the next round all have the same weights, whoever has done more.
    for (const bool joins : {false, true}) {
      policy.on_membership({0, joins, 9}, 10);
      policy.on_membership({1, joins, 4}, 10);
    }
    policy.on_ready({{0}, 9}, 11);
    const GroupDecisions next = policy.on_ready({{1}, 4}, 12);
    ASSERT_EQ(next.starts.size(), 1u);
    EXPECT_EQ(next.starts[0].staleness, 0u);
  }
}

// What the pipeline replicas a, b | c, d wait for at two stages, each for a third, would never
// come.
TEST(PartialReduce, OtherStagesFollowTheLast) {
  PartialReducePolicy policy({4, 2}, {2, {}});
  EXPECT_TRUE(policy.on_ready({{0}, 0}, 1).starts.empty());
  EXPECT_TRUE(policy.on_ready({{1}, 0}, 2).starts.empty());
  EXPECT_TRUE(policy.on_ready({{4}, 0}, 3).starts.empty());
  const GroupDecisions first = policy.on_ready({{6}, 0}, 4);
  ASSERT_EQ(first.starts.size(), 1u);  // Pipeline replicas 0 and 2, last stage.
  EXPECT_EQ(first.starts[0].stage, 1);
  const GroupDecisions second = policy.on_ready({{2}, 0}, 5);
  ASSERT_EQ(second.starts.size(), 1u);
  EXPECT_EQ(second.starts[0].stage, 0);
  EXPECT_EQ(second.starts[0].members[1].replica, ReplicaId{2});
}

TEST(StalenessWeights, ShareWhatALagIsWorth) {
  const std::vector<uint64_t> versions = {7, 9, 9, 8};
  const std::vector<double> weights = staleness_weights(versions, 0.5);
  EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-12);
  EXPECT_DOUBLE_EQ(weights[1], weights[2]);
  EXPECT_NEAR(weights[3] / weights[0], 2, 1e-12);
  EXPECT_NEAR((weights[1] + weights[2]) / weights[3], 2, 1e-12);
  EXPECT_GT(staleness_weights(std::vector<uint64_t>{0, UINT64_MAX}, 0.01)[0], 0);
}

}  // namespace
}  // namespace skein::plans
