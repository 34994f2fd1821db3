#include "plans/modes/planned_mode_choice.hpp"

#include <gtest/gtest.h>

#include "plans/plan/pipeline_plan.hpp"

namespace skein::plans {
namespace {

JobSpec auto_job() {
  JobSpec job;
  job.sync.policy = "auto";
  return job;
}

Plan plan_in(const std::string& mode) {
  Plan plan;
  plan.mode = mode;
  return plan;
}

RecentSteps seen(uint64_t steps) {
  return {std::deque<StepRatios>(std::min<uint64_t>(steps, 32)), steps};
}

/// How many of the first `steps` steps of a plan end with a look, each answered so.
int looks(PlannedModeChoice& choice, uint64_t steps, const ModeAnswer& answer) {
  int count = 0;
  for (uint64_t step = 1; step <= steps; ++step) {
    if (!choice.is_due(seen(step))) continue;
    ++count;
    EXPECT_FALSE(choice.on_answer(answer));
  }
  return count;
}

TEST(PlannedModeChoice, ChangesWhenTwoLooksInARowSaySo) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  EXPECT_FALSE(choice.on_answer({1, 2, ""}));
  EXPECT_FALSE(choice.on_answer({1, 1, ""})) << "not in a row";
  EXPECT_FALSE(choice.on_answer({1, 2, ""}));
  const auto change = choice.on_answer({1, 2, ""});
  ASSERT_TRUE(change);
  EXPECT_EQ(change->mode, kLocalMode);
  choice.begin_generation(plan_in(kLocalMode));
  EXPECT_FALSE(choice.on_answer({2, 1, ""}));
  EXPECT_EQ(choice.on_answer({2, 1, ""})->mode, kSynchronousMode);
}

TEST(PlannedModeChoice, WhatIsNotKnownOfThePlanInForceChangesNothing) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  for (int look = 0; look < 5; ++look) {
    EXPECT_FALSE(choice.on_answer({0, 1, ""}));
    EXPECT_FALSE(choice.on_answer({0, 0, ""}));
    EXPECT_FALSE(choice.on_answer({1, 0, ""}));
  }
}

TEST(PlannedModeChoice, LooksThatChangeNothingComeToBeRare) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  const int first = looks(choice, 100, {1, 1, ""});
  EXPECT_GT(first, 1);
  EXPECT_LE(looks(choice, 1000, {1, 1, ""}), first + 4);
}

TEST(PlannedModeChoice, AfterAWishTheNextLookComesSoon) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  looks(choice, 2000, {1, 1, ""});
  uint64_t step = 2000;
  while (!choice.is_due(seen(step))) ++step;
  EXPECT_FALSE(choice.on_answer({1, 2, ""}));
  const uint64_t wished = step;
  while (!choice.is_due(seen(step))) ++step;
  EXPECT_LT(step, wished + 10);
  EXPECT_TRUE(choice.on_answer({1, 2, ""}));
}

TEST(PlannedModeChoice, WhoChangesOftenDoesSoMoreRarely) {
  PlannedModeChoice choice(auto_job(), true);
  uint64_t before = 0;
  for (const char* mode : {kSynchronousMode, kLocalMode, kSynchronousMode}) {
    choice.begin_generation(plan_in(mode));
    uint64_t step = 1;
    while (!choice.is_due(seen(step))) ++step;
    EXPECT_GT(step, before);
    before = step;
    const ModeAnswer other = mode == kSynchronousMode ? ModeAnswer{1, 2, ""} : ModeAnswer{2, 1, ""};
    EXPECT_FALSE(choice.on_answer(other));
    EXPECT_TRUE(choice.on_answer(other));
  }
}

TEST(PlannedModeChoice, OnlyPlannedJobsThatAskForItChange) {
  EXPECT_FALSE(PlannedModeChoice(auto_job(), false).may_change());
  JobSpec job = auto_job();
  job.sync.policy = "overlapped";
  PlannedModeChoice choice(job, true);
  EXPECT_FALSE(choice.may_change());
  choice.begin_generation(plan_in(kLocalMode));
  EXPECT_FALSE(choice.is_due(seen(1000)));
}

}  // namespace
}  // namespace skein::plans
