#include "plans/coordinator/plan_trials.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

PlannedPipeline plan_of_rows(int64_t rows) {
  PlannedPipeline made;
  made.plan.microbatch_rows = rows;
  made.objective_us = 1000;
  made.reason = absl::StrCat("of ", rows);
  return made;
}

/// Plan 1 with rivals 2 and 3, each to be tried for three steps.
struct Trial {
  Trial() {
    PlannedPipeline chosen = plan_of_rows(1);
    chosen.rivals = {plan_of_rows(2), plan_of_rows(3)};
    start(chosen);
  }
  void start(const PlannedPipeline& chosen, bool is_urgent = false) {
    trials.on_chosen(chosen);
    Plan plan = chosen.plan;
    plan.generation = ++generation;
    trials.begin_generation(plan, is_urgent);
  }
  /// The first one does not count.
  PlanTrials::Outcome steps(double step_us) {
    EXPECT_EQ(trials.on_commit(50 * step_us).text, "");
    EXPECT_EQ(trials.on_commit(step_us).text, "");
    EXPECT_EQ(trials.on_commit(9 * step_us).text, "") << "one that was held up";
    return trials.on_commit(step_us);
  }
  uint64_t generation = 0;
  PlanTrials trials{3};
};

TEST(PlanTrials, EachIsTriedAndTheFastestStays) {
  Trial trial;
  PlanTrials::Outcome second = trial.steps(900);
  ASSERT_TRUE(second.next);
  EXPECT_EQ(second.next->plan.microbatch_rows, 2);
  EXPECT_EQ(second.text, "candidate 2 of 3 is tried: of 2");
  trial.start(*second.next);
  PlanTrials::Outcome third = trial.steps(700);
  ASSERT_TRUE(third.next);
  EXPECT_EQ(third.next->plan.microbatch_rows, 3);
  trial.start(*third.next);
  PlanTrials::Outcome end = trial.steps(800);
  ASSERT_TRUE(end.next);
  EXPECT_EQ(end.next->plan.microbatch_rows, 2);
  EXPECT_THAT(
      end.text,
      HasSubstr("an earlier one was the fastest: of 2; steps took 0.9 ms (1 predicted), 0.7 ms"));
  trial.start(*end.next);
  for (int n = 0; n < 9; ++n) EXPECT_EQ(trial.trials.on_commit(700).text, "");
}

TEST(PlanTrials, OfAPlanThatWasNotPredictedNothingIsSaidToBe) {
  PlannedPipeline first = plan_of_rows(6);
  first.objective_us = 0;
  first.rivals = {plan_of_rows(2)};
  Trial trial;
  trial.start(first);
  trial.start(*trial.steps(900).next);
  EXPECT_THAT(trial.steps(700).text, HasSubstr("steps took 0.9 ms, 0.7 ms (1 predicted)"));
}

TEST(PlanTrials, TheLastOneStaysWithoutAnotherChange) {
  Trial trial;
  trial.start(*trial.steps(900).next);
  trial.start(*trial.steps(900).next);
  const PlanTrials::Outcome end = trial.steps(100);
  EXPECT_FALSE(end.next);
  EXPECT_THAT(end.text, HasSubstr("the last one was the fastest: of 3"));
}

TEST(PlanTrials, AnotherPlanEndsThem) {
  Trial trial;
  const PlanTrials::Outcome second = trial.steps(900);
  trial.start(plan_of_rows(7));  // Somebody was lost.
  for (int n = 0; n < 9; ++n) EXPECT_EQ(trial.trials.on_commit(700).text, "");
}

TEST(PlanTrials, APlanThatWasMadeInAHurryIsComparedWithWhatThePlannerFinds) {
  Trial trial;
  PlannedPipeline found = plan_of_rows(4);
  found.rivals = {plan_of_rows(5)};
  EXPECT_FALSE(trial.trials.take_due(found)) << "nobody was lost";
  trial.start(plan_of_rows(7), /*is_urgent=*/true);
  trial.start(plan_of_rows(8));  // Around a link that is down: it is still to be compared.
  EXPECT_TRUE(trial.trials.take_due(found));
  EXPECT_FALSE(trial.trials.take_due(found)) << "plans would change without end";
  trial.start(found);
  const PlanTrials::Outcome second = trial.steps(900);
  ASSERT_TRUE(second.next);
  EXPECT_EQ(second.next->plan.microbatch_rows, 5);
}

TEST(PlanTrials, WhatThePlannerMadeInAHurryIsTriedAtOnceOrNotAtAll) {
  Trial trial;
  PlannedPipeline found = plan_of_rows(4);
  found.rivals = {plan_of_rows(5)};
  trial.start(found, /*is_urgent=*/true);
  EXPECT_FALSE(trial.trials.take_due(found)) << "it is tried";
  EXPECT_TRUE(trial.steps(900).next);
  trial.start(plan_of_rows(7), /*is_urgent=*/true);
  EXPECT_FALSE(trial.trials.take_due(plan_of_rows(6))) << "it has no rivals";
  EXPECT_FALSE(trial.trials.take_due(found));
}

TEST(PlanTrials, WithoutStepsOrRivalsNothingIsTried) {
  PlanTrials off(0);
  PlannedPipeline chosen = plan_of_rows(1);
  chosen.rivals = {plan_of_rows(2)};
  off.on_chosen(chosen);
  off.begin_generation(chosen.plan, true);
  EXPECT_EQ(off.on_commit(1).text, "");
  EXPECT_FALSE(off.take_due(chosen)) << "not even after a loss";
  PlanTrials alone(1);
  alone.on_chosen(plan_of_rows(1));
  alone.begin_generation(plan_of_rows(1).plan, false);
  EXPECT_EQ(alone.on_commit(1).text, "");
  EXPECT_EQ(alone.on_commit(1).text, "");
}

}  // namespace
}  // namespace skein::plans
