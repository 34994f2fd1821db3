#include "plans/chaos/chaos_timeline.hpp"

#include <gtest/gtest.h>

#include <map>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using FaultKind = FaultAction::Kind;

ChaosTimeline timeline(const char* script) { return ChaosTimeline(parse_chaos(script).value()); }

TEST(ChaosTimeline, DoesEachFaultActionOnceInTheOrderOfTime) {
  auto chaos = timeline("w2:kill@30s;w1:slow=4x@10s;w3:term@step=5;link(w1,w2):drop=2s@10s");
  EXPECT_TRUE(chaos.due(9.9, 4).empty());
  EXPECT_EQ(chaos.due(10, 4), (std::vector<FaultAction>{{FaultKind::kSetSpeed, {1}, {}, 0.25, 0},
                                                        {FaultKind::kDropLink, {1}, {2}, 1, 2}}));
  EXPECT_TRUE(chaos.due(10, 4).empty());
  EXPECT_EQ(chaos.due(11, 7), (std::vector<FaultAction>{{FaultKind::kTerm, {3}, {}, 1, 0}}));
  EXPECT_FALSE(chaos.is_done());
  EXPECT_EQ(chaos.due(100, 7), (std::vector<FaultAction>{{FaultKind::kKill, {2}, {}, 1, 0}}));
  EXPECT_TRUE(chaos.is_done());
}

TEST(ChaosTimeline, EndsWhatLastsForAWhile) {
  auto chaos = timeline("w1:slow=2x,5s@10s;w2:pause=1s@step=3");
  EXPECT_EQ(chaos.due(10, 0).size(), 1u);
  EXPECT_EQ(chaos.due(12, 3), (std::vector<FaultAction>{{FaultKind::kStop, {2}, {}, 1, 0}}));
  EXPECT_TRUE(chaos.due(12.9, 3).empty());
  EXPECT_EQ(chaos.due(13, 3), (std::vector<FaultAction>{{FaultKind::kContinue, {2}, {}, 1, 0}}));
  EXPECT_EQ(chaos.due(15, 3), (std::vector<FaultAction>{{FaultKind::kSetSpeed, {1}, {}, 1, 0}}));
  EXPECT_TRUE(chaos.is_done());
}

TEST(ChaosTimeline, ANewerSlownessIsNotUndoneByTheEndOfAnOlderOne) {
  auto chaos = timeline("w1:slow=4x,20s@10s;w1:slow=2x@15s");
  EXPECT_EQ(chaos.due(10, 0).size(), 1u);
  EXPECT_EQ(chaos.due(15, 0), (std::vector<FaultAction>{{FaultKind::kSetSpeed, {1}, {}, 0.5, 0}}));
  EXPECT_TRUE(chaos.due(1000, 0).empty());
}

TEST(ChaosTimeline, NothingIsDoneToADeadProcessLater) {
  auto chaos = timeline("w1:pause=10s@1s;w1:slow=4x,20s@1s;w1:kill@2s");
  EXPECT_EQ(chaos.due(1, 0).size(), 2u);
  EXPECT_EQ(chaos.due(2, 0), (std::vector<FaultAction>{{FaultKind::kKill, {1}, {}, 1, 0}}));
  EXPECT_TRUE(chaos.is_done());
}

TEST(ChaosTimeline, ALateLookFindsEverythingInOrder) {
  auto chaos = timeline("w1:pause=1s@1s;w1:slow=4x,2s@1s;w1:slow=3x@4s");
  const auto fault_actions = chaos.due(100, 0);
  ASSERT_EQ(fault_actions.size(), 5u);
  EXPECT_EQ(fault_actions[2].kind, FaultKind::kContinue);
  EXPECT_EQ(fault_actions[3], (FaultAction{FaultKind::kSetSpeed, {1}, {}, 1, 0}));
  EXPECT_EQ(fault_actions[4].speed, 1.0 / 3);
}

// However often it is looked at, a worker ends up with the speed of its latest word, or its own.
TEST(ChaosTimeline, TheLastWordOfEachWorkerHolds) {
  Rng rng(3);
  for (int round = 0; round < 500; ++round) {
    ChaosScript script;
    for (int n = 0; n < 6; ++n) {
      ChaosAction action;
      action.kind = ChaosAction::Kind::kSlow;
      action.worker = {static_cast<uint32_t>(1 + rng.below(2))};
      action.factor = static_cast<double>(1 + rng.below(4));
      action.duration_s = rng.below(2) == 0 ? 0 : 1 + rng.uniform() * 9;
      action.when.at_s = 10.0 * n + rng.uniform();
      script.push_back(action);
    }
    std::map<WorkerId, double> expected, speed;
    for (const ChaosAction& action : script) {
      expected[action.worker] = action.duration_s > 0 ? 1 : 1 / action.factor;
    }
    ChaosTimeline chaos(script);
    for (double now_s = 0; now_s < 100; now_s += rng.uniform() * 20) {
      for (const FaultAction& fault_action : chaos.due(now_s, 0))
        speed[fault_action.worker] = fault_action.speed;
    }
    for (const FaultAction& fault_action : chaos.due(100, 0))
      speed[fault_action.worker] = fault_action.speed;
    ASSERT_EQ(speed, expected) << to_text(script);
    ASSERT_TRUE(chaos.is_done());
  }
}

TEST(ChaosTimeline, AwaitsThoseWhoJoinAtATime) {
  auto chaos = timeline("another:join@2s;w1:kill@5s");
  EXPECT_TRUE(chaos.awaits_join());
  (void)chaos.due(2, 0);
  EXPECT_FALSE(chaos.awaits_join());
  // Steps are done by workers: if there are none, this one does not come.
  EXPECT_FALSE(timeline("another:join@step=9").awaits_join());
}

TEST(ChaosTimeline, SaysEachFaultActionInWords) {
  auto chaos = timeline(
      "w1:slow=4x@1s;w1:slow=1x@2s;w2:kill@3s;w3:term@4s;w4:pause=1s@5s;link(w1,w2):drop@7s;"
      "link(w1,w2):drop=2s@8s;coordinator:kill@9s");
  std::vector<std::string> texts;
  for (const FaultAction& fault_action : chaos.due(10, 0)) texts.push_back(to_text(fault_action));
  EXPECT_EQ(texts,
            (std::vector<std::string>{
                "w1 runs 4x slower", "w1 runs at its own speed", "w2 killed", "w3 asked to leave",
                "w4 paused", "w4 goes on", "link of w1 and w2 dropped for ever",
                "link of w1 and w2 dropped for 2 s", "the coordinator killed"}));
}

}  // namespace
}  // namespace skein::plans
