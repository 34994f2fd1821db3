#include "plans/coordinator/timing_watch.hpp"

#include <gtest/gtest.h>

#include "plans/plan/pipeline_plan.hpp"
#include "tests/plans/modes/pipeline_cluster.hpp"

namespace skein::plans {
namespace {

constexpr double kExpectedUs = 1000;

/// Two pipeline replicas of one stage, each worker of which is expected to be busy for so long.
TimingWatch watch_of_two(bool mitigates = true) {
  const JobSpec job = pipeline_job(1, 2, "overlapped");
  TimingWatch watch(job, mitigates);
  watch.begin_generation(make_pipeline_plan(job, {{1}, {2}}, 1).value());
  watch.expect({{{WorkerId{1}, kExpectedUs}, {WorkerId{2}, kExpectedUs}}});
  return watch;
}

ModeTimings::Pass pass_of(uint32_t pipeline, uint64_t busy_us) {
  return {pipeline, busy_us, {{ReplicaId{pipeline}, busy_us}}};
}

TEST(TimingWatch, AStepOfPipelineReplicasIsAPassOfEachOfThem) {
  TimingWatch watch = watch_of_two();
  watch.on_commit(1, {{},
                      {pass_of(1, 2000), pass_of(0, 1000), pass_of(1, 4000), pass_of(1, 1000),
                       pass_of(0, 3000)}});
  ASSERT_EQ(watch.recent().seen, 2u) << "the third pass of one has no like of the other";
  const StepRatios first = watch.recent().last.front();
  const StepRatios second = watch.recent().last.back();
  EXPECT_EQ(first, (StepRatios{{WorkerId{1}, 1}, {WorkerId{2}, 2}}));
  EXPECT_EQ(second, (StepRatios{{WorkerId{1}, 3}, {WorkerId{2}, 4}}));
}

TEST(TimingWatch, ACommitWithoutPassesIsNoStep) {
  TimingWatch watch = watch_of_two();
  watch.on_commit(1, {});
  EXPECT_EQ(watch.recent().seen, 0u);
}

/// Steps of a commit after a change of speed are left: they would be held against the old one.
TEST(TimingWatch, WhoBecomesSlowIsToldOnceAndIsDueWhereThePlanMayChange) {
  for (const bool mitigates : {true, false}) {
    TimingWatch watch = watch_of_two(mitigates);
    size_t changes = 0, due = 0;
    for (uint64_t step = 1; step <= 60; ++step) {
      const uint64_t busy_us = step > 20 ? 4000 : 1000;
      const auto seen = watch.on_commit(step, {{}, {pass_of(0, 1000), pass_of(1, busy_us)}});
      for (const SpeedChange& change : seen.changes) {
        EXPECT_EQ(change.worker, WorkerId{2});
        EXPECT_NEAR(change.slowdown, 4, 0.1);
        watch.expect({{{WorkerId{1}, kExpectedUs}, {WorkerId{2}, 4 * kExpectedUs}}});
      }
      changes += seen.changes.size();
      due += seen.due.size();
    }
    EXPECT_EQ(changes, 1u);
    EXPECT_EQ(due, mitigates ? 1u : 0u);
  }
}

/// They are the workers', not the plan's: the planner knows of them when it makes the next one.
TEST(TimingWatch, StallsAreKnownBeyondAChangeOfPlan) {
  TimingWatch watch = watch_of_two();
  EXPECT_TRUE(watch.stalls().empty());
  for (uint64_t step = 1; step <= 24; ++step) {
    watch.on_commit(step, {{}, {pass_of(0, 1000), pass_of(1, step == 10 ? 5000 : 1000)}});
  }
  const std::vector<StepRatios> stalls = watch.stalls();
  ASSERT_EQ(stalls.size(), 24u);
  for (size_t s = 0; s < stalls.size(); ++s) {
    EXPECT_EQ(stalls[s], s == 9 ? StepRatios({{WorkerId{2}, 5}}) : StepRatios()) << s;
  }
  watch.begin_generation(
      make_pipeline_plan(pipeline_job(1, 2, "overlapped"), {{1}, {2}}, 2).value());
  watch.expect({{{WorkerId{1}, kExpectedUs}, {WorkerId{2}, kExpectedUs}}});
  watch.on_commit(25, {{}, {pass_of(0, 1000), pass_of(1, 1000)}});
  EXPECT_EQ(watch.stalls(), stalls) << "one step says less";
}

}  // namespace
}  // namespace skein::plans
