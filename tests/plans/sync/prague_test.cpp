#include "plans/sync/prague.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "policy_driver.hpp"

namespace skein::plans {
namespace {

TEST(Prague, OwesNothingWhateverHappens) {
  for (const auto& [layout, options] : driver_settings()) {
    for (const uint32_t group_size : {2u, 4u}) {
      PraguePolicy policy(layout, {.group_size = group_size, .seed = options.seed});
      PolicyDriver driver(policy, layout, options);
      size_t largest = 0;
      driver.on_start = [&](const GroupStart& start) {
        largest = std::max(largest, start.members.size());
      };
      ASSERT_TRUE(driver.run()) << layout.pipelines << " x " << layout.stages;
      EXPECT_LE(largest, group_size);
    }
  }
}

TEST(Prague, MixesAndKeepsTheMean) {
  const PipelineLayout layout{10, 2};
  PraguePolicy policy(layout, {});
  PolicyDriver driver(policy, layout, {.coupled = true, .learns = false});
  const double mean = driver.mean(0);
  ASSERT_TRUE(driver.run());
  EXPECT_LT(driver.spread(0), 1e-6);
  EXPECT_NEAR(driver.mean(0), mean, 1e-6);
}

/// Seven pipeline replicas that signal in every round unless they wait, beside one that signals
/// in every tenth: the share of rounds in which they did not wait.
double share_of_rounds_without_waiting(uint64_t lag_max) {
  constexpr uint32_t kFast = 7, kRounds = 1000;
  PraguePolicy policy({kFast + 1, 1}, {.group_size = 2, .lag_max = lag_max});
  std::vector<uint64_t> steps(kFast + 1);
  std::vector<bool> waits(kFast + 1);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t pipeline = 0; pipeline <= kFast; ++pipeline) {
      if (waits[pipeline] || (pipeline == kFast && round % 10 < 9)) continue;
      waits[pipeline] = true;
      for (const GroupStart& start : policy.on_ready({{pipeline}, steps[pipeline]++}, 0).starts) {
        for (const GroupMember& member : start.members) waits[member.replica.value] = false;
        policy.on_group_end({start.number, true}, 0);
      }
    }
  }
  const uint64_t sum = std::accumulate(steps.begin(), steps.begin() + kFast, uint64_t{0});
  return static_cast<double>(sum) / (kFast * kRounds);
}

TEST(Prague, FastPipelinesDoNotWaitForOneThatLagsBehind) {
  EXPECT_GT(share_of_rounds_without_waiting(2), 0.98);
  EXPECT_LT(share_of_rounds_without_waiting(UINT32_MAX), 0.90);  // One of seven always waits.
}

TEST(Prague, IsTheSameWithTheSameSeed) {
  const PipelineLayout layout{6, 2};
  std::vector<std::vector<GroupStart>> runs(3);
  for (size_t run = 0; run < runs.size(); ++run) {
    PraguePolicy policy(layout, {.seed = run / 2});
    PolicyDriver driver(policy, layout, {.events = 2000});
    driver.on_start = [&](const GroupStart& start) { runs[run].push_back(start); };
    ASSERT_TRUE(driver.run());
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

}  // namespace
}  // namespace skein::plans
