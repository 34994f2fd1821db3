#include "plans/planner/action_times.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::plans {
namespace {

using testing::ElementsAre;

/// Two layers for one row; more rows take as many times as long.
MeasuredWorker worker(uint32_t id, double unit_us) {
  MeasuredWorker measured;
  measured.id = WorkerId{id};
  measured.profile.rows = {1};
  measured.profile.layers = {{"first", {{unit_us, 2 * unit_us, 3 * unit_us}}},
                             {"second", {{4 * unit_us, 5 * unit_us, 6 * unit_us}}}};
  return measured;
}

/// One layer on worker 1, the other on workers 2 and 3.
Plan two_stages() {
  Plan plan;
  plan.stages.resize(2);
  plan.stages[0].layers = {0, 1};
  plan.stages[0].replicas = {{ReplicaId{0}, WorkerId{1}, {0, 4}}};
  plan.stages[1].layers = {1, 2};
  plan.stages[1].replicas = {{ReplicaId{1}, WorkerId{2}, {0, 2}},
                             {ReplicaId{2}, WorkerId{3}, {2, 2}}};
  return plan;
}

TEST(ActionTimes, AreThoseOfTheSlowestReplicaForItsRows) {
  const auto times = action_times(two_stages(), {worker(1, 1), worker(2, 10), worker(3, 100)});
  EXPECT_THAT(times, ElementsAre(ActionTimes{4, 8, 12}, ActionTimes{800, 1000, 1200}));
}

TEST(ActionTimes, HaveTheForwardThatABackwardRunsAgain) {
  Plan plan = two_stages();
  plan.recompute = true;
  const auto times = action_times(plan, {worker(1, 1), worker(2, 10), worker(3, 100)});
  EXPECT_THAT(times, ElementsAre(ActionTimes{4, 12, 12}, ActionTimes{800, 1800, 1200}));
}

TEST(ActionTimes, AreNotKnownOfAStageWithAWorkerThatHasNotMeasured) {
  const auto times = action_times(two_stages(), {worker(1, 1), worker(2, 10)});
  EXPECT_THAT(times, ElementsAre(ActionTimes{4, 8, 12}, ActionTimes{}));
}

TEST(ActionTimes, AreNeverZeroWhichWouldSayUnknown) {
  const auto times = action_times(two_stages(), {worker(1, 0), worker(2, 0), worker(3, 1e300)});
  EXPECT_THAT(times[0], (ActionTimes{1, 1, 1}));
  EXPECT_EQ(times[1].forward_us, ActionTimes::kLongestUs);
}

}  // namespace
}  // namespace skein::plans
