#include "plans/sync/overlapped_average.hpp"

#include <gtest/gtest.h>

#include <map>

#include "policy_driver.hpp"

namespace skein::plans {
namespace {

TEST(OverlappedAverage, OwesNothingWhateverHappens) {
  for (const uint64_t local_steps : {1u, 3u}) {
    for (const auto& [layout, options] : driver_settings({.interrupts = true})) {
      OverlappedAveragePolicy policy(layout, {.local_steps = local_steps});
      PolicyDriver driver(policy, layout, options);
      ASSERT_TRUE(driver.run()) << layout.pipelines << " x " << layout.stages;
    }
  }
}

/// A group may take as long as a hundred steps.
TEST(OverlappedAverage, NobodyRunsAwayFromAnAverage) {
  for (const uint64_t group_us : {200u, 20'000u, 100'000u}) {
    for (const uint64_t ahead_max : {1u, 3u, 8u}) {
      const PipelineLayout layout{6, 2};
      const DriverOptions options{.group_us = group_us, .interrupts = true};
      OverlappedAveragePolicy policy(layout, {.ahead_max = ahead_max});
      PolicyDriver driver(policy, layout, options);
      std::map<ReplicaId, uint64_t> alone;        // Updates since its stage's last average.
      std::map<int32_t, uint64_t> all, began_us;  // By stage.
      uint64_t most = 0;
      driver.on_start = [&](const GroupStart& start) {
        if (start.average == Average::kLocal) {
          most = std::max(most, ++alone[start.members[0].replica]);
          ++all[start.stage];
          return;
        }
        EXPECT_EQ(start.members.size(), layout.pipelines);
        EXPECT_GE(all[start.stage], layout.pipelines);
        all[start.stage] = 0;
        for (const GroupMember& each : start.members) {
          EXPECT_TRUE(each.is_nonblocking) << each.replica;
          alone[each.replica] = 0;
        }
      };
      ASSERT_TRUE(driver.run()) << group_us << " " << ahead_max;
      // Up to its end `ahead_max` are done, and behind it no more than are due.
      EXPECT_LE(most, ahead_max + layout.pipelines);
      if (group_us >= 20'000) {
        EXPECT_GE(most, ahead_max);
      }
    }
  }
}

TEST(OverlappedAverage, NobodyWaitsUnlessAnAverageTakesLong) {
  const PipelineLayout layout{9, 2};
  OverlappedAveragePolicy policy(layout, {});
  PolicyDriver driver(policy, layout, {.slow_share = 0.4, .interrupts = true});
  ASSERT_TRUE(driver.run());
  EXPECT_EQ(driver.wait_us_longest(), 0u);
}

TEST(OverlappedAverage, MixesAndKeepsTheMean) {
  const PipelineLayout layout{9, 2};
  OverlappedAveragePolicy policy(layout, {});
  PolicyDriver driver(policy, layout, {.coupled = true, .interrupts = true, .learns = false});
  const double mean = driver.mean(0);
  ASSERT_TRUE(driver.run());
  EXPECT_LT(driver.spread(0), 1e-6);
  EXPECT_NEAR(driver.mean(0), mean, 1e-6);
}

TEST(OverlappedAverage, AveragesEverySoManyUpdatesWhoeverDoesThem) {
  OverlappedAveragePolicy policy({2, 1}, {.local_steps = 2});
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_EQ(policy.on_ready({{0}, step}, step).starts.size(), 1u);
  }
  const GroupDecisions due = policy.on_ready({{0}, 3}, 3);
  ASSERT_EQ(due.starts.size(), 2u);
  EXPECT_EQ(due.starts[0].average, Average::kLocal);
  const std::vector<GroupMember> members = {{{0}, 3, 0.5, true}, {{1}, 0, 0.5, true}};
  EXPECT_EQ(due.starts[1].members, members);
  EXPECT_EQ(due.starts[1].staleness, 4u);
}

TEST(OverlappedAverage, TheLastOfAnAverageMayDie) {
  OverlappedAveragePolicy policy({3, 1}, {});
  policy.on_ready({{0}, 0}, 0);
  policy.on_ready({{0}, 1}, 0);
  ASSERT_EQ(policy.on_ready({{0}, 2}, 0).starts.size(), 2u);
  for (const uint32_t pipeline : {0u, 1u, 2u}) policy.on_membership({pipeline, false, 0}, 1);
  for (const uint32_t pipeline : {1u, 2u}) policy.on_membership({pipeline, true, 5}, 2);
  policy.on_ready({{1}, 5}, 3);
  EXPECT_EQ(policy.on_ready({{2}, 5}, 3).starts.size(), 2u);
}

}  // namespace
}  // namespace skein::plans
