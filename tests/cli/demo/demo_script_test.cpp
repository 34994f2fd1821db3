#include "cli/demo/demo_script.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace skein::cli {
namespace {

constexpr double kSeconds = 90;

/// Ten looks a second. A plan begins its steps `pause_s` after the fault action that caused it,
/// with `steps_per_s`; returns when each fault action came.
struct Played {
  std::vector<double> kills, adds, stops;
};

Played play(DemoScript& script, double pause_s, double steps_per_s, double length_s = 600) {
  Played played;
  uint64_t generation = 1;
  uint32_t newest = 4;
  double plan_at_s = 2;
  for (int tick = 0; tick < length_s * 10; ++tick) {
    const double now = tick * 0.1;
    DemoState state;
    state.seconds = now;
    state.generation = generation;
    state.newest_worker = newest;
    state.steps_of_plan =
        now > plan_at_s ? static_cast<uint64_t>((now - plan_at_s) * steps_per_s) : 0;
    const DemoAction fault_action = script.next(state);
    if (fault_action == DemoAction::kNone) continue;
    if (fault_action == DemoAction::kStop) {
      played.stops.push_back(now);
      continue;
    }
    const bool kills = fault_action == DemoAction::kKillWorker;
    (kills ? played.kills : played.adds).push_back(now);
    ++generation;
    if (!kills) ++newest;
    plan_at_s = now + pause_s;
  }
  return played;
}

TEST(DemoScript, KillsAddsAndStopsOnceInThisOrder) {
  DemoScript script(kSeconds);
  const Played played = play(script, 1, 5);
  ASSERT_EQ(played.kills.size(), 1u);
  ASSERT_EQ(played.adds.size(), 1u);
  ASSERT_EQ(played.stops.size(), 1u);
  EXPECT_LT(played.kills[0], played.adds[0]);
  EXPECT_LT(played.adds[0], played.stops[0]);
  EXPECT_LT(played.stops[0], kSeconds);
  EXPECT_TRUE(script.has_recovered());
  EXPECT_TRUE(script.has_grown());
}

TEST(DemoScript, WaitsForEachFaultActionToBeSeenOnASlowMachine) {
  DemoScript script(kSeconds);
  const Played played = play(script, 20, 0.3);
  ASSERT_EQ(played.adds.size(), 1u);
  EXPECT_GT(played.adds[0], played.kills[0] + 30);  // The pause and three steps.
  EXPECT_TRUE(script.has_grown());
}

TEST(DemoScript, StopsWithoutTheEndOfTheStoryIfItDoesNotCome) {
  DemoScript script(kSeconds);
  const Played played = play(script, 1e9, 5);
  EXPECT_EQ(played.kills.size(), 1u);
  EXPECT_TRUE(played.adds.empty());
  ASSERT_EQ(played.stops.size(), 1u);
  EXPECT_FALSE(script.has_recovered());
}

TEST(DemoScript, WaitsForTheAddedWorkerThroughOtherPlans) {
  DemoScript script(kSeconds);
  DemoState state{40, 1, 9, 4};
  EXPECT_EQ(script.next(state), DemoAction::kKillWorker);
  state = {41, 2, 9, 4};
  EXPECT_EQ(script.next(state), DemoAction::kNone);
  state = {60, 2, 99, 4};
  EXPECT_EQ(script.next(state), DemoAction::kAddWorker);
  state = {88, 3, 99, 4};  // Some other change.
  EXPECT_EQ(script.next(state), DemoAction::kNone);
  EXPECT_FALSE(script.has_grown());
  state = {89, 4, 99, 5};
  EXPECT_EQ(script.next(state), DemoAction::kStop);
  EXPECT_TRUE(script.has_grown());
}

TEST(DemoScript, KillsNobodyBeforeThereAreSteps) {
  DemoScript script(kSeconds);
  const Played played = play(script, 1, 0);
  EXPECT_TRUE(played.kills.empty());
  EXPECT_EQ(played.stops.size(), 1u);
}

}  // namespace
}  // namespace skein::cli
