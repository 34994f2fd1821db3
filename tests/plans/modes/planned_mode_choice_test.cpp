#include "plans/modes/planned_mode_choice.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

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

/// Iterations a second that are predicted; those apart are worth the same.
ModeAnswer predicted(double together, double apart) { return {together, apart, 1, ""}; }

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
  EXPECT_FALSE(choice.on_answer(predicted(1, 2)));
  EXPECT_FALSE(choice.on_answer(predicted(1, 1))) << "not in a row";
  EXPECT_FALSE(choice.on_answer(predicted(1, 2)));
  const auto change = choice.on_answer(predicted(1, 2));
  ASSERT_TRUE(change);
  EXPECT_EQ(change->mode, kLocalMode);
  choice.begin_generation(plan_in(kLocalMode));
  EXPECT_FALSE(choice.on_answer(predicted(2, 1)));
  EXPECT_EQ(choice.on_answer(predicted(2, 1))->mode, kSynchronousMode);
}

TEST(PlannedModeChoice, WhatIsNotKnownOfThePlanInForceChangesNothing) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  for (int look = 0; look < 5; ++look) {
    EXPECT_FALSE(choice.on_answer(predicted(0, 1)));
    EXPECT_FALSE(choice.on_answer(predicted(0, 0)));
    EXPECT_FALSE(choice.on_answer(predicted(1, 0)));
  }
}

TEST(PlannedModeChoice, LooksThatChangeNothingComeToBeRare) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  const int first = looks(choice, 100, predicted(1, 1));
  EXPECT_GT(first, 1);
  EXPECT_LE(looks(choice, 1000, predicted(1, 1)), first + 4);
}

TEST(PlannedModeChoice, AfterAWishTheNextLookComesSoon) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  looks(choice, 2000, predicted(1, 1));
  uint64_t step = 2000;
  while (!choice.is_due(seen(step))) ++step;
  EXPECT_FALSE(choice.on_answer(predicted(1, 2)));
  const uint64_t wished = step;
  while (!choice.is_due(seen(step))) ++step;
  EXPECT_LT(step, wished + 10);
  EXPECT_TRUE(choice.on_answer(predicted(1, 2)));
}

TEST(PlannedModeChoice, ChangesAtTheTwelfthStepAtTheSoonest) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  std::vector<uint64_t> looks;
  for (uint64_t step = 1; step <= 12; ++step) {
    if (!choice.is_due(seen(step))) continue;
    looks.push_back(step);
    EXPECT_EQ(choice.on_answer(predicted(1, 2)).has_value(), step == 12) << step;
  }
  EXPECT_EQ(looks, (std::vector<uint64_t>{8, 12}));
}

/// As when layers move: the next look comes as soon as there are steps to look at, and decides.
TEST(PlannedModeChoice, AWishOutlastsANewPlanOfTheSameModeAndWorkers) {
  for (const bool are_others : {false, true}) {
    PlannedModeChoice choice(auto_job(), true);
    Plan plan = plan_in(kSynchronousMode);
    choice.begin_generation(plan);
    EXPECT_FALSE(choice.on_answer(predicted(1, 2)));
    if (are_others) plan.stages = {{{0, 1}, {{{0}, {1}, {0, 1}}}}};
    choice.begin_generation(plan);
    EXPECT_FALSE(choice.is_due(seen(7)));
    EXPECT_TRUE(choice.is_due(seen(8)));
    EXPECT_EQ(choice.on_answer(predicted(1, 2)).has_value(), !are_others);
  }
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
    const ModeAnswer other = mode == kSynchronousMode ? predicted(1, 2) : predicted(2, 1);
    EXPECT_FALSE(choice.on_answer(other));
    EXPECT_TRUE(choice.on_answer(other));
  }
}

/// Commits of a step each, at so many steps a second.
void train(PlannedModeChoice& choice, uint64_t first, uint64_t end, double per_second) {
  for (uint64_t step = first; step < end; ++step) choice.on_commit(step + 1, 1e6 / per_second);
}

TEST(PlannedModeChoice, WhatAnIterationApartIsWorthCounts) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(choice.on_answer({1, 2, 0.5, ""}));
}

/// The other mode is tried where the present one does less than was predicted of both; once it is
/// known what that one really does, the better one stays.
TEST(PlannedModeChoice, WhatWasMeasuredOfAModeCountsMoreThanWhatIsPredicted) {
  JobSpec job = auto_job();
  job.training.global_batch_size = pipeline_samples(job);  // A step is an iteration.
  PlannedModeChoice choice(job, true);
  choice.begin_generation(plan_in(kSynchronousMode));
  const ModeAnswer alike = predicted(10, 10);
  train(choice, 0, 20, 10);
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(choice.on_answer(alike));
  train(choice, 20, 60, 5);
  EXPECT_FALSE(choice.on_answer(alike));
  ASSERT_EQ(choice.on_answer(alike)->mode, kLocalMode);

  choice.begin_generation(plan_in(kLocalMode));
  EXPECT_FALSE(choice.on_answer(alike)) << "nothing is measured there yet";
  train(choice, 60, 100, 4);
  EXPECT_FALSE(choice.on_answer(alike));
  ASSERT_EQ(choice.on_answer(alike)->mode, kSynchronousMode);

  choice.begin_generation(plan_in(kSynchronousMode));
  train(choice, 100, 140, 5);
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(choice.on_answer(alike)) << "5 against 4";
}

TEST(PlannedModeChoice, AFewSlowFirstStepsDoNotSpeakAgainstAMode) {
  JobSpec job = auto_job();
  job.training.global_batch_size = pipeline_samples(job);  // A step is an iteration.
  PlannedModeChoice choice(job, true);
  choice.begin_generation(plan_in(kSynchronousMode));
  train(choice, 0, 16, 5);  // What fifteen steps took; the first commit only begins them.
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(choice.on_answer(predicted(10, 10)));
  train(choice, 16, 17, 5);
  EXPECT_FALSE(choice.on_answer(predicted(10, 10)));
  EXPECT_TRUE(choice.on_answer(predicted(10, 10)));
}

TEST(PlannedModeChoice, WhatWasMeasuredWithOtherWorkersIsForgotten) {
  for (const bool are_others : {false, true}) {
    PlannedModeChoice choice(auto_job(), true);
    choice.begin_generation(plan_in(kSynchronousMode));
    train(choice, 0, 40, 1e9);  // So much that nothing else comes near it.
    EXPECT_FALSE(choice.on_answer(predicted(10, 20)));
    Plan plan = plan_in(kSynchronousMode);
    if (are_others) plan.stages = {{{0, 1}, {{{0}, {1}, {0, 1}}}}};
    choice.begin_generation(plan);
    EXPECT_FALSE(choice.on_answer(predicted(10, 20)));
    EXPECT_EQ(choice.on_answer(predicted(10, 20)).has_value(), are_others);
  }
}

Plan plan_of(const std::string& mode, const std::vector<WorkerId>& workers) {
  Plan plan = plan_in(mode);
  plan.stages.resize(1);
  for (WorkerId worker : workers) plan.stages[0].replicas.push_back({{0}, worker, {0, 1}});
  return plan;
}

TEST(PlannedModeChoice, AFewStepsOfANewPlanSayNoMoreThanManyOfTheLastOne) {
  JobSpec job = auto_job();
  job.training.global_batch_size = pipeline_samples(job);  // A step is an iteration.
  PlannedModeChoice choice(job, true);
  const ModeAnswer alike = predicted(10, 10);
  choice.begin_generation(plan_of(kLocalMode, {{1}}));
  train(choice, 0, 40, 4);
  EXPECT_FALSE(choice.on_answer(alike));
  ASSERT_TRUE(choice.on_answer(alike)) << "10 are predicted";
  choice.begin_generation(plan_of(kSynchronousMode, {{1}}));
  train(choice, 40, 80, 5);
  EXPECT_FALSE(choice.on_answer(alike)) << "5 against 4";
  choice.begin_generation(plan_of(kSynchronousMode, {{1}}));  // Layers have moved.
  train(choice, 80, 90, 4.5);
  EXPECT_FALSE(choice.on_answer(alike));
  // Apart there would be 5.5 by what was measured; 10 together are only what was predicted.
  EXPECT_FALSE(choice.on_answer(predicted(10, 13.75)));
  EXPECT_TRUE(choice.on_answer(predicted(10, 13.75)));
}

TEST(PlannedModeChoice, WhatWasMeasuredWithWorkersThatAreGoneIsForgotten) {
  JobSpec job = auto_job();
  job.training.global_batch_size = pipeline_samples(job);  // A step is an iteration.
  for (const bool is_gone : {false, true}) {
    PlannedModeChoice choice(job, true);
    const ModeAnswer alike = predicted(10, 10);
    choice.begin_generation(plan_of(kLocalMode, {{1}, {2}}));
    train(choice, 0, 40, 2);
    EXPECT_FALSE(choice.on_answer(alike));
    ASSERT_TRUE(choice.on_answer(alike)) << "10 are predicted";
    choice.forget_without(is_gone ? std::set<WorkerId>{{1}, {3}}
                                  : std::set<WorkerId>{{1}, {2}, {3}});
    choice.begin_generation(plan_of(kSynchronousMode, {{1}, {3}}));
    train(choice, 40, 80, 5);
    EXPECT_FALSE(choice.on_answer(alike));
    EXPECT_EQ(choice.on_answer(alike).has_value(), is_gone) << "2 against 5, or 10 as predicted";
  }
}

/// A worker that has no place in the plan of one mode may have one in the other's.
TEST(PlannedModeChoice, WhatWasMeasuredOfAModeOutlastsTheOtherOne) {
  JobSpec job = auto_job();
  job.training.global_batch_size = pipeline_samples(job);  // A step is an iteration.
  PlannedModeChoice choice(job, true);
  const ModeAnswer alike = predicted(10, 10);
  choice.begin_generation(plan_of(kSynchronousMode, {{1}}));
  train(choice, 0, 40, 5);
  EXPECT_FALSE(choice.on_answer(alike));
  ASSERT_TRUE(choice.on_answer(alike)) << "half of what is predicted";
  choice.begin_generation(plan_of(kLocalMode, {{1}, {2}}));
  train(choice, 40, 80, 6);
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(choice.on_answer(alike)) << "6 against 5";
}

TEST(PlannedModeChoice, TheFirstCommitOfAPlanIsNotOfItsPace) {
  PlannedModeChoice choice(auto_job(), true);
  choice.begin_generation(plan_in(kSynchronousMode));
  choice.on_commit(1, 60e6);
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(choice.on_answer(predicted(10, 10)));
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
