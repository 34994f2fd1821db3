#include "plans/sync/progressive_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

std::map<int32_t, int> sizes(const PipelineGroups& groups) {
  std::map<int32_t, int> sizes;
  for (const int32_t group : groups) {
    if (group >= 0) ++sizes[group];
  }
  return sizes;
}

std::vector<double> one_straggler(size_t pipelines, double delay) {
  std::vector<double> step_us(pipelines, 100);
  step_us[pipelines / 2] = 100 * (1 + delay);
  return step_us;
}

TEST(PredictedSlowdown, IsTheFormulaForOneStragglerInEvenGroups) {
  for (const double delay : {0.0, 1.0, 3.0}) {
    for (const int32_t count : {1, 2, 4, 8, 16}) {
      const std::vector<double> step_us = one_straggler(16, delay);
      const double expected = 1 / (1 - (delay / (1 + delay)) / count);
      EXPECT_NEAR(predicted_slowdown(step_us, group_by_speed(step_us, count)), expected, 1e-12);
    }
  }
}

TEST(GroupBySpeed, PutsStragglersTogetherInEvenGroups) {
  EXPECT_EQ(group_by_speed(std::vector<double>{1, 9, 1, 8, 1, 1}, 3),
            (PipelineGroups{1, 0, 1, 0, 2, 2}));
  EXPECT_EQ(group_by_speed(std::vector<double>{1, 9, 0, 1}, 2), (PipelineGroups{1, 0, -1, 1}));
}

TEST(GroupBySpeed, SizesDifferByAtMostOneAndTheSlowestGroupIsSmallest) {
  for (size_t pipelines = 1; pipelines <= 20; ++pipelines) {
    for (int32_t count = 1; count <= static_cast<int32_t>(pipelines); ++count) {
      const auto size = sizes(group_by_speed(one_straggler(pipelines, 1), count));
      ASSERT_EQ(size.size(), static_cast<size_t>(count));
      EXPECT_EQ(size.at(0), static_cast<int>(pipelines) / count);
      for (const auto& [group, members] : size) EXPECT_LE(members - size.at(0), 1);
    }
  }
}

TEST(FewestGroups, ThreeHundredPercentDelayNeedsFiveGroupsForTwentyPercent) {
  const PipelineGroups groups = fewest_groups(one_straggler(20, 3), 1.2);
  EXPECT_EQ(sizes(groups).size(), 5u);
}

TEST(FewestGroups, EqualPipelinesAreOneGroup) {
  EXPECT_EQ(sizes(fewest_groups(std::vector<double>(8, 50), 1.01)).size(), 1u);
}

TEST(FewestGroups, IsTheSmallestNumberWithinTheTargetOrTheFastestOne) {
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> step_us(1 + rng.below(9));
    for (double& each : step_us) each = 50 + 400 * rng.uniform() * rng.uniform();
    const double target = 1 + rng.uniform();
    const PipelineGroups chosen = fewest_groups(step_us, target);
    const auto count = static_cast<int32_t>(sizes(chosen).size());
    const double slowdown = predicted_slowdown(step_us, chosen);
    for (int32_t other = 1; other <= static_cast<int32_t>(step_us.size()); ++other) {
      const double others = predicted_slowdown(step_us, group_by_speed(step_us, other));
      if (other < count) {
        EXPECT_GT(others, target);
      }
      if (slowdown > target) {
        EXPECT_GE(others, slowdown);
      }
    }
  }
}

TEST(FewestGroups, AreNoMoreThanAllowed) {
  const std::vector<double> step_us = one_straggler(20, 3);
  for (const int32_t count_max : {1, 2, 4, 5, 9}) {
    EXPECT_EQ(sizes(fewest_groups(step_us, 1.2, count_max)).size(),
              static_cast<size_t>(std::min(count_max, 5)));
  }
}

TEST(AccuracyBound, HalvesTheGroupsWhenTheLossRisesAndDoublesThemWhenItFalls) {
  AccuracyBound bound(0.05);
  bound.on_loss(4, 8);
  bound.on_loss(4.1, 8);
  EXPECT_EQ(bound.count_max(), kAnyCount) << "it is within the bound";
  bound.on_loss(4.3, 8);
  EXPECT_EQ(bound.count_max(), 4);
  bound.on_loss(4.3, 8);
  EXPECT_EQ(bound.count_max(), 4) << "four groups have not been tried";
  bound.on_loss(4.3, 4);
  bound.on_loss(4.3, 2);
  bound.on_loss(4.3, 1);
  EXPECT_EQ(bound.count_max(), 1);
  bound.on_loss(4.15, 1);
  EXPECT_EQ(bound.count_max(), 1) << "not lower than before";
  bound.on_loss(3.9, 1);
  EXPECT_EQ(bound.count_max(), 2);
  for (int i = 0; i < 40; ++i) bound.on_loss(3.8 - i * 0.01, 2);
  EXPECT_EQ(bound.count_max(), kAnyCount);
}

TEST(AccuracyBound, ALossThatIsNotFiniteHasRisenAndIsNeverTheLowest) {
  AccuracyBound bound(0.1);
  bound.on_loss(std::nan(""), 8);
  EXPECT_EQ(bound.count_max(), 4);
  bound.on_loss(5, 4);
  bound.on_loss(6, 4);
  EXPECT_EQ(bound.count_max(), 2);
}

TEST(AccuracyBound, OfNothingAllowsAnything) {
  AccuracyBound bound(0);
  bound.on_loss(1, 8);
  bound.on_loss(100, 8);
  EXPECT_EQ(bound.count_max(), kAnyCount);
}

TEST(RegroupTrigger, ALossThatRisesMakesFewerGroupsAtOnce) {
  RegroupTrigger trigger({.loss_rise_max = 0.1, .patience = 3});
  const std::vector<double> step_us = one_straggler(20, 3);
  const PipelineGroups five = group_by_speed(step_us, 5);
  EXPECT_FALSE(trigger.observe(step_us, five));
  trigger.on_loss(2, five);
  trigger.on_loss(2.5, five);
  const auto fewer = trigger.observe(step_us, five);
  ASSERT_TRUE(fewer);
  EXPECT_EQ(sizes(*fewer).size(), 2u);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(trigger.observe(step_us, *fewer)) << "for all delay";
}

TEST(RegroupTrigger, AGivenNumberOfGroupsStaysAndStragglersMoveTogether) {
  RegroupTrigger trigger({.group_count = 4, .patience = 2});
  std::vector<double> step_us(8, 100);
  const PipelineGroups even = group_by_speed(step_us, 4);
  EXPECT_FALSE(trigger.observe(step_us, even));
  step_us[1] = step_us[7] = 400;
  EXPECT_FALSE(trigger.observe(step_us, even));
  const auto moved = trigger.observe(step_us, even);
  ASSERT_TRUE(moved);
  EXPECT_EQ(sizes(*moved).size(), 4u);
  EXPECT_EQ((*moved)[1], (*moved)[7]);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(trigger.observe(step_us, *moved));
}

TEST(RegroupTrigger, AGivenNumberOfGroupsComesBackWhenTheLossFalls) {
  RegroupTrigger trigger({.group_count = 4, .loss_rise_max = 0.1, .patience = 2});
  const std::vector<double> step_us(8, 100);
  PipelineGroups now = group_by_speed(step_us, 4);
  const auto observe = [&] {
    if (auto next = trigger.observe(step_us, now)) now = *next;
    return sizes(now).size();
  };
  trigger.on_loss(2, now);
  trigger.on_loss(3, now);
  trigger.on_loss(3, now);  // The change has not been made yet.
  EXPECT_EQ(observe(), 2u);
  trigger.on_loss(1.9, now);
  observe();
  EXPECT_EQ(observe(), 4u);
}

TEST(RegroupTrigger, AsksOnlyAfterItsPatienceAndOnlyInARow) {
  RegroupTrigger trigger({.slowdown_max = 1.2, .margin = 1.1, .patience = 3});
  const std::vector<double> even(8, 100);
  const std::vector<double> uneven = one_straggler(8, 3);
  const PipelineGroups one(8, 0);
  EXPECT_FALSE(trigger.observe(uneven, one));
  EXPECT_FALSE(trigger.observe(uneven, one));
  EXPECT_FALSE(trigger.observe(even, one));
  EXPECT_FALSE(trigger.observe(uneven, one));
  EXPECT_FALSE(trigger.observe(uneven, one));
  const auto groups = trigger.observe(uneven, one);
  ASSERT_TRUE(groups);
  EXPECT_LE(predicted_slowdown(uneven, *groups), 1.2);
}

TEST(RegroupTrigger, DoesNotGoToAndFroWithTheSamePipelines) {
  for (double delay = 0; delay < 4; delay += 0.01) {
    RegroupTrigger trigger({.patience = 1});
    const std::vector<double> step_us = one_straggler(12, delay);
    PipelineGroups groups(12, 0);
    int changes = 0;
    for (int observation = 0; observation < 20; ++observation) {
      if (auto next = trigger.observe(step_us, groups)) {
        groups = *next;
        ++changes;
      }
    }
    EXPECT_LE(changes, 1) << delay;
  }
}

TEST(RegroupTrigger, ComesBackToOneGroupWhenTheStragglerHasRecovered) {
  RegroupTrigger trigger({.patience = 1});
  const std::vector<double> even(8, 100);
  const auto groups = trigger.observe(even, {0, 0, 1, 1, 2, 2, 3, 3});
  ASSERT_TRUE(groups);
  EXPECT_EQ(sizes(*groups).size(), 1u);
}

}  // namespace
}  // namespace skein::plans
