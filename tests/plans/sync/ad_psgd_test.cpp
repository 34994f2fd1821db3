#include "plans/sync/ad_psgd.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plans/sync/paired_rounds.hpp"
#include "policy_driver.hpp"

namespace skein::plans {
namespace {

TEST(AdPsgd, OwesNothingWhateverHappens) {
  for (const auto& [layout, options] : driver_settings({.interrupts = true})) {
    AdPsgdPolicy policy(layout, options.seed);
    PolicyDriver driver(policy, layout, options);
    size_t largest = 0;
    driver.on_start = [&](const GroupStart& start) {
      largest = std::max(largest, start.members.size());
    };
    ASSERT_TRUE(driver.run()) << layout.pipelines << " x " << layout.stages;
    EXPECT_LE(largest, 2u);
  }
}

// There are as many non-blocking replicas as active ones, less one: an active one waits for
// averages that are going on, not for steps.
TEST(AdPsgd, NobodyWaitsForAStep) {
  const PipelineLayout layout{9, 2};
  const DriverOptions options{.slow_share = 0.4, .interrupts = true};
  AdPsgdPolicy policy(layout, 1);
  PolicyDriver driver(policy, layout, options);
  ASSERT_TRUE(driver.run());
  EXPECT_LE(driver.wait_us_longest(), layout.pipelines * options.group_us);
}

TEST(AdPsgd, MixesAndKeepsTheMean) {
  const PipelineLayout layout{9, 2};
  AdPsgdPolicy policy(layout, 1);
  PolicyDriver driver(policy, layout, {.coupled = true, .interrupts = true, .learns = false});
  const double mean = driver.mean(0);
  ASSERT_TRUE(driver.run());
  EXPECT_LT(driver.spread(0), 1e-6);
  EXPECT_NEAR(driver.mean(0), mean, 1e-6);
}

TEST(AdPsgd, InterruptsANonblockingReplicaInItsStep) {
  AdPsgdPolicy policy({2, 1}, 1);
  const GroupDecisions pair = policy.on_ready({{0}, 0}, 1);
  ASSERT_EQ(pair.starts.size(), 1u);
  const std::vector<GroupMember> members = {{{0}, 0, 0.5}, {{1}, 0, 0.5, true}};
  EXPECT_EQ(pair.starts[0].members, members);
  // It comes to the end of its step before the average does.
  EXPECT_TRUE(policy.on_ready({{1}, 0}, 2).starts.empty());
  const GroupDecisions local = policy.on_group_end({0, true}, 3);
  ASSERT_EQ(local.starts.size(), 1u);
  EXPECT_EQ(local.starts[0].average, Average::kLocal);
}

TEST(AdPsgd, TakesSidesAnewWhenOneSideHasDied) {
  AdPsgdPolicy policy({4, 1}, 1);
  policy.on_membership({1, false, 0}, 1);
  policy.on_membership({3, false, 0}, 2);
  const GroupDecisions pair = policy.on_ready({{0}, 0}, 3);
  ASSERT_EQ(pair.starts.size(), 1u);
  EXPECT_EQ(pair.starts[0].members[1].replica, ReplicaId{2});
}

TEST(PairedRounds, OwesNothingWhateverHappens) {
  for (const auto& [layout, options] : driver_settings()) {
    PairedRoundsPolicy policy(layout, options.seed);
    PolicyDriver driver(policy, layout, options);
    ASSERT_TRUE(driver.run()) << layout.pipelines << " x " << layout.stages;
  }
}

TEST(PairedRounds, PartnersAreInTheSameRound) {
  const PipelineLayout layout{7, 2};
  PairedRoundsPolicy policy(layout, 1);
  PolicyDriver driver(policy, layout, {.coupled = true, .learns = false});
  driver.on_start = [](const GroupStart& start) {
    EXPECT_EQ(start.staleness, 0u);
    EXPECT_EQ(start.members.front().step, start.members.back().step);
  };
  ASSERT_TRUE(driver.run());
  EXPECT_LT(driver.spread(1), 1e-6);
}

}  // namespace
}  // namespace skein::plans
