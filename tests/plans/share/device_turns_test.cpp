#include "plans/share/device_turns.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/share/turn_naming.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;

constexpr DevicePieceNeed kForward{PieceNeed::kTurn, false};
constexpr DevicePieceNeed kLast{PieceNeed::kTurn, true};
constexpr DevicePieceNeed kAside{PieceNeed::kAside};
constexpr DevicePieceNeed kShare{PieceNeed::kShare};

/// One device, on which each piece takes a millisecond.
struct OneDevice {
  explicit OneDevice(std::vector<DeviceJob> jobs) {
    for (const DeviceJob& job : jobs) turns.add(job);
  }
  void ask(uint64_t job, const DevicePieceNeed& need) { turns.request(job, need, now_us); }
  /// Whose pieces are done, until nothing more begins.
  std::vector<uint64_t> run() {
    std::vector<uint64_t> order;
    while (const auto job = turns.start(now_us)) {
      now_us += 1'000;
      turns.end(*job, now_us);
      turns.check_invariants();
      order.push_back(*job);
    }
    return order;
  }

  DeviceTurns turns;
  uint64_t now_us = 1;
};

TEST(DeviceTurns, AJobAloneDoesItsWorkInOrderAndAtOnce) {
  OneDevice device(std::vector<DeviceJob>{{.number = 7}});
  for (bool takes_turns : {false, true}) {
    EXPECT_EQ(takes_turns, takes_turns && device.turns.enter(7, 10, device.now_us));
    for (const auto& need : {kForward, kLast, kAside, kShare}) device.ask(7, need);
    EXPECT_THAT(device.run(), ElementsAre(7, 7, 7, 7));
  }
  EXPECT_GE(device.turns.head(7), 10u);
  EXPECT_EQ(device.turns.wake_us(), std::nullopt);
}

TEST(DeviceTurns, PassesAlternateHoweverEarlyOneJobIsReady) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 11, device.now_us);
  for (int pass = 0; pass < 3; ++pass) {
    device.ask(2, kForward);
    device.ask(2, kLast);
  }
  EXPECT_TRUE(device.run().empty()) << "the first turn is of job 1, which has nothing to do yet";
  device.ask(1, kForward);
  EXPECT_THAT(device.run(), ElementsAre(1)) << "it keeps the turn until its pass ends";
  device.ask(1, kLast);
  EXPECT_THAT(device.run(), ElementsAre(1, 2, 2));
  device.ask(1, kForward);
  device.ask(1, kLast);
  EXPECT_THAT(device.run(), ElementsAre(1, 1, 2, 2));
}

TEST(DeviceTurns, AsidesNeedNoTurnAndGoFirst) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 11, device.now_us);
  device.ask(1, kForward);
  device.ask(1, kLast);
  device.ask(2, kAside);
  EXPECT_THAT(device.run(), ElementsAre(2, 1, 1));
  device.ask(1, kAside);
  device.ask(1, kForward);
  EXPECT_THAT(device.run(), ElementsAre(1)) << "the turn is of job 2";
}

TEST(DeviceTurns, WeightsAreThePartsOfTheTurns) {
  OneDevice device({{.number = 1, .weight = 7}, {.number = 2, .weight = 3}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 10, device.now_us);
  for (int pass = 0; pass < 100; ++pass) {
    device.ask(1, kLast);
    device.ask(2, kLast);
  }
  std::vector<uint64_t> order = device.run();
  order.resize(50);
  EXPECT_NEAR(std::count(order.begin(), order.end(), 1), 35, 1);
}

TEST(DeviceTurns, JobsWithoutTurnsShareTheTimeByWeight) {
  OneDevice device({{.number = 1, .weight = 1}, {.number = 2, .weight = 4}});
  for (int piece = 0; piece < 100; ++piece) {
    device.ask(1, kForward);
    device.ask(2, kShare);
  }
  std::vector<uint64_t> order = device.run();
  order.resize(50);
  EXPECT_NEAR(std::count(order.begin(), order.end(), 1), 10, 1);
}

/// So does a job whose actions wait for each other.
TEST(DeviceTurns, JobsThatAskForOnePieceAtATimeShareTheTimeByWeight) {
  OneDevice device({{.number = 1, .weight = 1}, {.number = 2, .weight = 3}});
  std::map<uint64_t, int> done;
  for (uint64_t job : {1u, 2u}) device.ask(job, {PieceNeed::kTurn, true, 0});
  for (int event = 0; event < 400; ++event) {
    const auto job = device.turns.start(device.now_us);
    if (!job) {
      const auto wake_us = device.turns.wake_us();
      ASSERT_TRUE(wake_us.has_value());
      device.now_us = std::max(device.now_us + 1, *wake_us);
      continue;
    }
    device.now_us += 1'000;
    device.turns.end(*job, device.now_us);
    ++done[*job];
    device.now_us += 20;  // Until it hears of that.
    device.ask(*job, {PieceNeed::kTurn, true, 0});
  }
  EXPECT_NEAR(static_cast<double>(done[2]) / done[1], 3, 0.5);
}

TEST(DeviceTurns, TimeInWhichAJobWantedNothingIsNotMadeUpFor) {
  OneDevice device({{.number = 1}, {.number = 2}});
  for (int piece = 0; piece < 50; ++piece) device.ask(1, kForward);
  device.run();
  for (int piece = 0; piece < 10; ++piece) {
    device.ask(1, kForward);
    device.ask(2, kForward);
  }
  std::vector<uint64_t> order = device.run();
  order.resize(10);
  EXPECT_NEAR(std::count(order.begin(), order.end(), 1), 5, 1);
}

TEST(DeviceTurns, ALargerPriorityGoesFirstPieceByPiece) {
  OneDevice device({{.number = 1, .priority = 0}, {.number = 2, .priority = 5}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 20, device.now_us);
  device.ask(1, kForward);
  device.ask(1, kLast);
  device.ask(2, kForward);
  device.ask(2, kShare);
  EXPECT_THAT(device.run(), ElementsAre(2, 2, 1, 1)) << "and the other fills what it leaves";
}

/// Two pieces a pass, of a millisecond, with `gap_us` between them and before the next pass.
void train_important(OneDevice& device, int passes, uint64_t gap_us) {
  for (int pass = 0; pass < passes; ++pass) {
    for (int32_t index : {0, 1}) {
      device.ask(2, {PieceNeed::kTurn, index == 1, index});
      device.run();
      device.now_us += gap_us;
    }
  }
}

TEST(DeviceTurns, APieceThatWouldHoldUpAMoreImportantJobIsNotBegun) {
  OneDevice device({{.number = 1, .priority = 0}, {.number = 2, .priority = 5}});
  device.ask(1, {PieceNeed::kTurn, true, 0});  // From here on it is known to take a millisecond.
  device.run();
  train_important(device, 10, 3'000);
  device.ask(1, {PieceNeed::kTurn, true, 0});
  EXPECT_TRUE(device.run().empty()) << "the next piece of job 2 should come now";
  const auto wake_us = device.turns.wake_us();
  ASSERT_TRUE(wake_us.has_value());
  EXPECT_LT(*wake_us, device.now_us + 1'000) << "but it is waited for a moment only";
  device.ask(2, {PieceNeed::kTurn, false, 0});
  EXPECT_THAT(device.run(), ElementsAre(2, 1)) << "and then there is time";
}

TEST(DeviceTurns, NobodyStarvesBesideAJobThatHasTheDeviceAllTheTime) {
  OneDevice device({{.number = 1, .priority = 0}, {.number = 2, .priority = 5}});
  int done = 0;
  int all = 0;
  device.ask(1, {PieceNeed::kTurn, true, 0});
  for (; device.now_us < 100'000'000; ++all) {
    device.ask(2, {PieceNeed::kTurn, true, 0});
    const auto job = device.turns.start(device.now_us);
    ASSERT_TRUE(job.has_value());
    device.now_us += 1'000;
    device.turns.end(*job, device.now_us);
    if (*job != 1) continue;
    ++done;
    device.ask(1, {PieceNeed::kTurn, true, 0});
  }
  EXPECT_GT(done, 90) << "a piece a second";
  EXPECT_LT(done, all / 20) << "and no more than a twentieth";
}

TEST(DeviceTurns, AJobWhoseTurnHasJustBegunHasNotStarved) {
  OneDevice device({{.number = 1}, {.number = 2}, {.number = 3, .priority = 5}});
  std::map<uint64_t, uint64_t> done_us;
  for (uint64_t job : {1u, 2u}) {
    device.turns.enter(job, 9 + job, device.now_us);
    device.ask(job, kLast);
  }
  while (done_us.size() < 2) {
    ASSERT_LT(device.now_us, 100'000'000u);
    device.ask(3, kShare);
    const auto job = device.turns.start(device.now_us);
    ASSERT_TRUE(job.has_value());
    device.now_us += 1'000;
    device.turns.end(*job, device.now_us);
    if (*job != 3) done_us[*job] = device.now_us;
  }
  EXPECT_GT(done_us[2] - done_us[1], 500'000u) << "it waits as long as the first one did";
}

TEST(DeviceTurns, WeightsCountAmongJobsThatFillWhatAMoreImportantOneLeaves) {
  OneDevice device(
      {{.number = 1, .weight = 1}, {.number = 2, .weight = 4}, {.number = 3, .priority = 5}});
  std::map<uint64_t, int> done;
  for (uint64_t job : {1u, 2u}) device.ask(job, kShare);
  for (int event = 0; event < 4'000; ++event) {
    if (event % 2 == 0) device.ask(3, kShare);
    const auto job = device.turns.start(device.now_us);
    ASSERT_TRUE(job.has_value());
    device.now_us += *job == 3 ? 6'000 : 1'000;
    device.turns.end(*job, device.now_us);
    ++done[*job];
    if (*job != 3) device.ask(*job, kShare);
  }
  EXPECT_NEAR(static_cast<double>(done[2]) / done[1], 4, 0.5);
}

TEST(DeviceTurns, AHolderWhosePassDoesNotGoOnLosesItsTurnsWhateverElseItDoes) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 11, device.now_us);
  device.ask(2, kLast);
  uint64_t pieces = 0;
  for (; device.turns.takes_turns(1) && pieces < 1'000; ++pieces) {
    device.ask(1, kShare);  // It validates.
    device.run();
    device.now_us += 10'000;
  }
  EXPECT_LT(pieces, 150u) << "that is a second and some";
}

TEST(DeviceTurns, APieceThatIsHeldDoesNotHoldAShorterOneOfAnotherJob) {
  OneDevice device({{.number = 1}, {.number = 2}, {.number = 3, .priority = 5}});
  for (const auto& [job, taken_us] : {std::pair(1u, 50'000u), std::pair(2u, 500u)}) {
    device.ask(job, {PieceNeed::kTurn, true, 0});
    ASSERT_EQ(device.turns.start(device.now_us), job);
    device.now_us += taken_us;
    device.turns.end(job, device.now_us);
  }
  for (int pass = 0; pass < 20; ++pass) {
    device.now_us += 10'000;
    device.ask(3, {PieceNeed::kTurn, true, 0});
    ASSERT_EQ(device.turns.start(device.now_us), 3u);
    device.now_us += 10'000;
    device.turns.end(3, device.now_us);
  }
  for (uint64_t job : {1u, 2u}) device.ask(job, {PieceNeed::kTurn, true, 0});
  EXPECT_EQ(device.turns.start(device.now_us), 2u);
}

TEST(DeviceTurns, APieceThatHungIsGivenAsLongTheNextTime) {
  OneDevice device({{.number = 1}, {.number = 2}});
  for (int piece = 0; piece < 3; ++piece) {
    device.ask(1, kLast);
    ASSERT_EQ(device.turns.start(device.now_us), 1u);
    device.now_us += 70'000'000;
    device.ask(2, kShare);
    EXPECT_EQ(device.run().empty(), piece > 0) << "beside one that hangs the others go on";
    device.turns.end(1, device.now_us);
    device.run();
  }
}

TEST(DeviceTurns, ATurnThatWasLongWhileNobodyWaitedIsNoMeasure) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.ask(1, kForward);
  device.run();
  device.now_us += 3'600'000'000;
  device.ask(1, kLast);
  device.run();
  device.turns.enter(2, device.turns.head(2) + kTurnUnit, device.now_us);
  device.ask(2, kLast);
  device.run();
  const auto wake_us = device.turns.wake_us();
  ASSERT_TRUE(wake_us.has_value());
  EXPECT_LE(*wake_us - device.now_us, 10'000'000u);
}

TEST(DeviceTurns, APassThatHungIsNoMeasureOfTheNextOne) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.ask(1, kForward);
  ASSERT_EQ(device.turns.start(device.now_us), 1u);
  device.now_us = device.turns.wake_us().value();
  ASSERT_EQ(device.turns.start(device.now_us), std::nullopt);
  device.now_us += 3'600'000'000;
  device.turns.end(1, device.now_us);
  device.ask(1, kLast);
  device.run();
  for (uint64_t job : {1u, 2u}) {
    device.turns.enter(job, device.turns.head(job) + kTurnUnit, device.now_us);
  }
  device.ask(2, kLast);
  const auto wake_us = device.turns.wake_us();
  ASSERT_TRUE(wake_us.has_value());
  EXPECT_LE(*wake_us - device.now_us, 2'000'000u);
}

TEST(DeviceTurns, AJobThatEntersWhileItsPieceHangsHoldsUpNobody) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.ask(1, kLast);
  ASSERT_EQ(device.turns.start(device.now_us), 1u);
  device.now_us = device.turns.wake_us().value();
  ASSERT_EQ(device.turns.start(device.now_us), std::nullopt);
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 11, device.now_us);
  device.ask(2, kLast);
  const auto wake_us = device.turns.wake_us();
  ASSERT_TRUE(wake_us.has_value());
  device.now_us = *wake_us;
  EXPECT_THAT(device.run(), ElementsAre(2));
}

TEST(DeviceTurns, AtTheEndOfTheLineAJobTakesNoTurns) {
  OneDevice device(std::vector<DeviceJob>{{.number = 1}});
  device.turns.enter(1, kTurnPositionMax - kTurnUnit, device.now_us);
  for (int pass = 0; pass < 4; ++pass) {
    device.ask(1, kLast);
    device.run();
    EXPECT_LE(device.turns.head(1), kTurnPositionMax);
  }
  EXPECT_FALSE(device.turns.takes_turns(1));
}

/// Its reports are older than its commits by that, and positions come too late.
TEST(DeviceTurns, AJobThatCommunicatesForLongAndTheOtherAreBothAsFastAsAlone) {
  constexpr uint64_t kPassUs = 100'000;
  for (const uint64_t communicates_us : {400'000u, 900'000u, 3'000'000u}) {
    OneDevice device({{.number = 1}, {.number = 2}});
    TurnNaming names[] = {TurnNaming(1), TurnNaming(1)};
    const auto begin = [&](uint64_t job) {
      const uint64_t position = names[job - 1].name_next();
      if (position > 0) device.turns.enter(job, position, device.now_us);
      device.ask(job, kLast);
    };
    const auto report = [&](uint64_t job) {
      names[job - 1].on_report({device.turns.head(job), device.turns.takes_turns(job)});
    };
    for (uint64_t job : {1u, 2u}) report(job);
    begin(1);
    uint64_t commit_us = communicates_us;
    std::map<uint64_t, uint64_t> passes;
    while (passes[2] < 60) {
      if (commit_us > 0 && device.now_us >= commit_us) {
        commit_us = 0;
        begin(2);
      }
      const auto job = device.turns.start(device.now_us);
      device.now_us += job ? kPassUs : 1'000;
      if (!job) continue;
      device.turns.end(*job, device.now_us);
      report(*job);
      ++passes[*job];
      if (*job == 1) {
        begin(1);
      } else {
        commit_us = device.now_us + communicates_us;
      }
    }
    const uint64_t alone_us = 60 * (communicates_us + kPassUs);
    EXPECT_LT(device.now_us, alone_us * 5 / 4) << communicates_us;
    EXPECT_GT(passes[1] * kPassUs, (device.now_us - 60 * kPassUs) * 9 / 10) << communicates_us;
  }
}

TEST(DeviceTurns, AJobThatHasHungGetsNoLessAfterwards) {
  OneDevice device({{.number = 1}, {.number = 2, .priority = 5}});
  device.ask(1, kShare);
  ASSERT_EQ(device.turns.start(device.now_us), 1u);
  device.now_us += 600'000'000;
  device.ask(2, kShare);
  device.run();
  device.turns.end(1, device.now_us);
  device.ask(1, kShare);
  const uint64_t since_us = device.now_us;
  for (uint64_t job = 2; job == 2;) {
    device.ask(2, kShare);
    job = device.turns.start(device.now_us).value();
    device.now_us += 100'000;
    device.turns.end(job, device.now_us);
  }
  EXPECT_LT(device.now_us - since_us, 3'000'000u) << "nobody starves";
}

TEST(DeviceTurns, AHolderWhosePassIsBehindItsAsidesIsReady) {
  OneDevice device({{.number = 1}, {.number = 2}, {.number = 3, .priority = 5}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 11, device.now_us);
  device.ask(3, kShare);
  ASSERT_EQ(device.turns.start(device.now_us), 3u);
  device.ask(2, kLast);
  device.ask(1, kAside);
  device.ask(1, kLast);
  device.now_us += 1'200'000;
  device.turns.end(3, device.now_us);
  EXPECT_THAT(device.run(), ElementsAre(1, 1, 2));
  EXPECT_TRUE(device.turns.takes_turns(1));
}

TEST(DeviceTurns, WhatIsLeftOfEndedPassesGoesBeforeAllElse) {
  OneDevice device({{.number = 1, .priority = 0}, {.number = 2, .priority = 5}});
  device.turns.enter(2, 10, device.now_us);
  for (int piece = 0; piece < 3; ++piece) {
    device.ask(2, kForward);
    device.ask(1, kForward);
  }
  device.turns.end_passes(1, device.now_us);
  device.ask(1, kAside);
  EXPECT_THAT(device.run(), ElementsAre(1, 1, 1, 1, 2, 2, 2));
  device.turns.begin_passes(1);
  device.ask(1, kForward);
  device.ask(2, kForward);
  EXPECT_THAT(device.run(), ElementsAre(2, 1));
}

TEST(DeviceTurns, AJobWithLongWaitsInItsPassesKeepsItsTurns) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 10, device.now_us);
  int lost_turns = 0;
  for (int pass = 0; pass < 6; ++pass) {
    device.ask(2, kLast);
    device.ask(1, kForward);
    device.run();
    device.now_us +=
        1'500'000;  // Its neighbour takes so long, which is more than patience at first.
    device.run();
    device.ask(1, kLast);
    device.run();
    for (uint64_t job : {1u, 2u}) {
      if (device.turns.takes_turns(job)) continue;
      ++lost_turns;
      device.turns.enter(job, device.turns.head(job) + kTurnUnit, device.now_us);
    }
  }
  EXPECT_LE(lost_turns, 2) << "then it is known";
}

TEST(DeviceTurns, AnotherPriorityOrWeightTakesItsTurnsAway) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.change({.number = 1, .priority = 3, .weight = 2}, device.now_us);
  EXPECT_FALSE(device.turns.takes_turns(1));
  device.ask(2, kForward);
  device.ask(1, kForward);
  EXPECT_THAT(device.run(), ElementsAre(1, 2));
}

TEST(DeviceTurns, AMoreImportantJobThatIsLateIsNotWaitedForAnyLonger) {
  OneDevice device({{.number = 1, .priority = 0}, {.number = 2, .priority = 5}});
  device.ask(1, {PieceNeed::kTurn, true, 0});
  device.run();
  train_important(device, 10, 3'000);
  device.ask(1, {PieceNeed::kTurn, true, 0});
  device.run();
  device.now_us = device.turns.wake_us().value();
  EXPECT_THAT(device.run(), ElementsAre(1));
}

TEST(DeviceTurns, AJobComesInOnlyAheadOfAllThatHasBegun) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.ask(1, kForward);
  device.run();
  EXPECT_FALSE(device.turns.enter(2, 10, device.now_us));
  EXPECT_FALSE(device.turns.takes_turns(2));
  EXPECT_FALSE(device.turns.enter(2, kTurnPositionMax + 1, device.now_us));
  EXPECT_TRUE(device.turns.enter(2, 11, device.now_us));
}

TEST(DeviceTurns, AHolderThatDoesNothingLosesItsTurnsWhenOthersWait) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 11, device.now_us);
  device.ask(1, kForward);
  device.run();
  EXPECT_EQ(device.turns.wake_us(), std::nullopt) << "nobody waits";
  device.ask(2, kLast);
  const auto wake_us = device.turns.wake_us();
  ASSERT_TRUE(wake_us.has_value());
  device.now_us = *wake_us - 1;
  EXPECT_TRUE(device.run().empty());
  device.now_us = *wake_us;
  EXPECT_THAT(device.run(), ElementsAre(2));
  EXPECT_FALSE(device.turns.takes_turns(1));
  device.ask(1, kLast);
  EXPECT_THAT(device.run(), ElementsAre(1)) << "it goes on without";
  EXPECT_TRUE(device.turns.enter(1, device.turns.head(1) + 1, device.now_us));
}

TEST(DeviceTurns, APieceThatHangsDoesNotStopTheOthers) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 11, device.now_us);
  device.ask(1, kForward);
  device.ask(1, kLast);
  device.ask(2, kLast);
  ASSERT_EQ(device.turns.start(device.now_us), 1u);
  device.now_us = device.turns.wake_us().value();
  EXPECT_THAT(device.run(), ElementsAre(2));
  EXPECT_TRUE(device.run().empty()) << "its next piece comes after the one that hangs";
  device.turns.end(1, ++device.now_us);
  EXPECT_THAT(device.run(), ElementsAre(1));
}

TEST(DeviceTurns, WhoIsGoneHoldsNoTurn) {
  OneDevice device({{.number = 1}, {.number = 2}});
  device.turns.enter(1, 10, device.now_us);
  device.turns.enter(2, 11, device.now_us);
  device.ask(1, kForward);
  device.ask(2, kLast);
  ASSERT_EQ(device.turns.start(device.now_us), 1u);
  device.turns.remove(1);
  EXPECT_THAT(device.run(), ElementsAre(2));
  device.turns.end(1, device.now_us);  // It had not heard of it.
  EXPECT_TRUE(device.run().empty());
}

/// Jobs whose pipelines lie over the same devices, each with its coordinator: a pass goes forward
/// over all its workers and back; then a commit goes to each of them, which may take long. Any of
/// the things that are under way may be the next to happen.
class SharedWorkers {
 public:
  SharedWorkers(uint64_t seed, size_t workers, size_t jobs) : rng_(seed) {
    devices_.resize(workers);
    for (size_t job = 0; job < jobs; ++job) add_job();
  }

  void step() {
    now_us_ += 1 + rng_.below(2'000);
    if (rng_.below(2'000) == 0) now_us_ += 3'000'000;  // Everybody's patience is over.
    const bool has_running = std::any_of(devices_.begin(), devices_.end(),
                                         [](const auto& each) { return each.running != 0; });
    if (changes_ && rng_.below(300) == 0) return change();
    if (has_running && (messages_.empty() || rng_.below(2) == 0)) return end_one();
    if (!messages_.empty()) return deliver();
    for (size_t worker = 0; worker < devices_.size(); ++worker) start(worker);
    now_us_ += 10'000;
  }
  void stop_changes() { changes_ = false; }
  /// By job; those that get only what jobs with a larger priority leave are apart.
  std::map<uint64_t, uint64_t> commits() const {
    int64_t largest = 0;
    for (const auto& [number, priority] : priorities_) largest = std::max(largest, priority);
    std::map<uint64_t, uint64_t> found;
    for (const auto& [number, priority] : priorities_) {
      if (priority < largest) continue;
      const auto known = commits_.find(number);
      found[number] = known == commits_.end() ? 0 : known->second;
    }
    return found;
  }
  uint64_t passes_in_turn() const { return passes_in_turn_; }
  /// That came while others trained.
  uint64_t late_jobs() const { return late_jobs_; }

 private:
  struct Message {
    enum Kind { kPrepared, kStart, kInput, kCommit, kQuiesce, kGone } kind;
    uint64_t job = 0;
    uint64_t generation = 0;
    size_t stage = 0;  // kGone: the worker.
    bool is_backward = false;
    uint64_t position = 0;
    uint64_t at_us = 0;  // Not before.
  };
  struct Piece {
    uint64_t job = 0;
    uint64_t generation = 0;
    uint64_t pass = 0;
    size_t stage = 0;
    bool is_backward = false;
  };
  struct SharedDevice {
    DeviceTurns turns;
    std::map<uint64_t, std::deque<Piece>> queued;  // By job, as its requests.
    uint64_t running = 0;
    std::map<int64_t, std::pair<uint64_t, uint64_t>> last_turn;  // By priority: position and job.
  };
  struct JobState {
    std::vector<size_t> workers;  // By stage.
    uint64_t generation = 0;
    uint64_t pass = 0;
    bool is_quiescing = false;
    size_t answers = 0;
    std::optional<TurnNaming> naming;
    int64_t weight = 1;
    std::vector<bool> has_begun;  // By stage: it has heard of the pass.
    std::vector<int> inputs;      // By stage: what has come before.
  };

  void add_job() {
    const uint64_t number = ++newest_;
    const DeviceJob job{.number = number,
                        .priority = static_cast<int64_t>(rng_.below(4) == 0),
                        .weight = 1 + static_cast<int64_t>(rng_.below(3))};
    for (SharedDevice& each : devices_) each.turns.add(job);
    priorities_[number] = job.priority;
    jobs_[number].weight = job.weight;
    reform(number);
  }
  /// A new generation, on other workers.
  void reform(uint64_t number) {
    JobState& job = jobs_[number];
    ++job.generation;
    job.is_quiescing = false;
    job.answers = 0;
    job.naming.emplace(job.weight);
    job.workers.clear();
    for (size_t worker = 0; worker < devices_.size(); ++worker) {
      if (rng_.below(3) > 0) job.workers.push_back(worker);
    }
    if (job.workers.empty()) job.workers.push_back(0);
    for (size_t i = job.workers.size(); i > 1; --i) {
      std::swap(job.workers[i - 1], job.workers[rng_.below(i)]);
    }
    job.has_begun.assign(job.workers.size(), false);
    job.inputs.assign(job.workers.size(), 0);
    for (size_t stage = 0; stage < job.workers.size(); ++stage) {
      send({Message::kPrepared, number, job.generation, stage});
    }
  }
  void change() {
    if (jobs_.size() < kJobsMax && rng_.below(8) == 0) {
      ++late_jobs_;
      return add_job();
    }
    const auto found =
        std::next(jobs_.begin(), static_cast<std::ptrdiff_t>(rng_.below(jobs_.size())));
    const uint64_t number = found->first;
    JobState& job = found->second;
    if (jobs_.size() > 2 && rng_.below(8) == 0) return end_job(number);
    if (rng_.below(4) == 0) return lose(number);
    if (rng_.below(4) == 0) {  // It has no turns on one device for a while.
      SharedDevice& device = devices_[rng_.below(devices_.size())];
      device.turns.leave(number, now_us_);
      return;
    }
    if (job.is_quiescing) return;
    job.is_quiescing = true;
    job.answers = 0;
    ++job.generation;
    for (size_t stage = 0; stage < job.workers.size(); ++stage) {
      send({Message::kQuiesce, number, job.generation, stage});
    }
  }

  /// Some messages take as long as many passes of others.
  void send(Message message) {
    if (rng_.below(8) == 0) message.at_us = now_us_ + rng_.below(100'000);
    messages_.push_back(message);
  }
  /// It is over, of which each device hears in its time; it may be in a pass there.
  void end_job(uint64_t number) {
    jobs_.erase(number);
    priorities_.erase(number);
    commits_.erase(number);
    for (size_t worker = 0; worker < devices_.size(); ++worker) {
      send({Message::kGone, number, 0, worker});
    }
  }
  void remove_from(SharedDevice& device, uint64_t number) {
    device.turns.remove(number);
    device.turns.check_invariants();
    device.queued.erase(number);
    if (device.running == number) device.running = 0;
  }
  /// It is lost on all devices, with what it has there, and back at once.
  void lose(uint64_t number) {
    JobState& job = jobs_.at(number);
    for (SharedDevice& device : devices_) {
      remove_from(device, number);
      device.turns.add({number, priorities_.at(number), job.weight});
    }
    ++job.generation;
    reform(number);
  }

  void deliver() {
    std::swap(messages_[rng_.below(messages_.size())], messages_.back());
    if (messages_.back().at_us > now_us_) return;
    const Message message = messages_.back();
    messages_.pop_back();
    if (message.kind == Message::kGone) {
      remove_from(devices_[message.stage], message.job);
      return start(message.stage);
    }
    const auto found = jobs_.find(message.job);
    if (found == jobs_.end() || message.generation != found->second.generation) return;
    JobState& job = found->second;
    SharedDevice& device = devices_[job.workers[message.stage]];
    switch (message.kind) {
      case Message::kPrepared:
        job.naming->on_report(report(device, message.job));
        if (++job.answers == job.workers.size()) broadcast(message.job, Message::kStart);
        break;
      case Message::kStart:
      case Message::kCommit:
        if (message.kind == Message::kStart) device.turns.begin_passes(message.job);
        if (message.position > 0) device.turns.enter(message.job, message.position, now_us_);
        job.has_begun[message.stage] = true;
        try_forward(message.job, message.stage);
        break;
      case Message::kInput:
        if (message.is_backward) {
          ask(message.job, message.stage, true);
        } else {
          ++job.inputs[message.stage];
          try_forward(message.job, message.stage);
        }
        break;
      case Message::kQuiesce:
        // It answers when nothing of it is left on the device.
        device.turns.end_passes(message.job, now_us_);
        if (!device.queued[message.job].empty()) {
          send(message);
        } else if (++job.answers == job.workers.size()) {
          reform(message.job);
        }
        break;
      case Message::kGone:
        break;
    }
    for (size_t worker = 0; worker < devices_.size(); ++worker) start(worker);
  }
  static TurnReport report(const SharedDevice& device, uint64_t job) {
    return {device.turns.head(job), device.turns.takes_turns(job)};
  }
  void broadcast(uint64_t number, Message::Kind kind) {
    JobState& job = jobs_.at(number);
    const uint64_t position = job.naming->name_next();
    for (size_t stage = 0; stage < job.workers.size(); ++stage) {
      send({kind, number, job.generation, stage, false, position});
    }
  }
  void try_forward(uint64_t number, size_t stage) {
    JobState& job = jobs_.at(number);
    const bool has_input = stage == 0 || job.inputs[stage] > 0;
    if (!job.has_begun[stage] || !has_input) return;
    job.has_begun[stage] = false;
    if (stage > 0) --job.inputs[stage];
    ask(number, stage, false);
  }
  void ask(uint64_t number, size_t stage, bool is_backward) {
    JobState& job = jobs_.at(number);
    SharedDevice& device = devices_[job.workers[stage]];
    device.turns.request(number, {PieceNeed::kTurn, is_backward, is_backward ? 1 : 0}, now_us_);
    device.queued[number].push_back({number, job.generation, job.pass, stage, is_backward});
  }

  void start(size_t worker) {
    SharedDevice& device = devices_[worker];
    const bool was_free = device.running == 0;
    const auto started = device.turns.start(now_us_);
    device.turns.check_invariants();
    if (!started) return;
    ASSERT_TRUE(was_free);
    device.running = *started;
    const Piece& piece = device.queued.at(*started).front();
    const bool begins = !piece.is_backward && device.turns.takes_turns(*started);
    const auto job = jobs_.find(*started);
    const bool is_here = job != jobs_.end() && job->second.generation == piece.generation;
    if (begins && is_here) check_order(worker, piece);
  }
  /// The same pass has the same position everywhere, and positions only grow.
  void check_order(size_t worker, const Piece& piece) {
    SharedDevice& device = devices_[worker];
    const std::pair<uint64_t, uint64_t> turn = {*device.turns.position(piece.job), piece.job};
    auto& last = device.last_turn[priorities_.at(piece.job)];
    EXPECT_LT(last, turn) << "the line goes back";
    last = turn;
    const auto key = std::tuple(piece.job, piece.generation, piece.pass);
    const auto [known, is_new] = positions_.emplace(key, turn.first);
    EXPECT_EQ(known->second, turn.first) << "job " << piece.job << " pass " << piece.pass;
    ++passes_in_turn_;
  }
  void end_one() {
    std::vector<size_t> busy;
    for (size_t worker = 0; worker < devices_.size(); ++worker) {
      if (devices_[worker].running != 0) busy.push_back(worker);
    }
    const size_t worker = busy[rng_.below(busy.size())];
    SharedDevice& device = devices_[worker];
    const uint64_t number = std::exchange(device.running, 0);
    const Piece piece = device.queued.at(number).front();
    device.queued.at(number).pop_front();
    device.turns.end(number, now_us_);
    device.turns.check_invariants();
    const auto job = jobs_.find(number);
    const bool is_here = job != jobs_.end() && job->second.generation == piece.generation;
    if (is_here && !job->second.is_quiescing) end_piece(job->second, piece);
    start(worker);
  }
  void end_piece(JobState& job, const Piece& piece) {
    const bool is_last_stage = piece.stage + 1 == job.workers.size();
    if (!piece.is_backward) {
      if (is_last_stage) return ask(piece.job, piece.stage, true);
      send({Message::kInput, piece.job, piece.generation, piece.stage + 1});
      return;
    }
    // What the worker says when it is ready.
    const SharedDevice& device = devices_[job.workers[piece.stage]];
    job.naming->on_report(report(device, piece.job));
    if (piece.stage > 0) {
      send({Message::kInput, piece.job, piece.generation, piece.stage - 1, true});
      return;
    }
    ++job.pass;
    ++commits_[piece.job];
    broadcast(piece.job, Message::kCommit);
  }

  static constexpr size_t kJobsMax = 5;

  Rng rng_;
  std::vector<SharedDevice> devices_;
  std::map<uint64_t, JobState> jobs_;
  std::vector<Message> messages_;
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, uint64_t>
      positions_;  // By job, generation, pass.
  std::map<uint64_t, uint64_t> commits_;
  std::map<uint64_t, int64_t> priorities_;
  uint64_t newest_ = 0;  // The largest number of a job.
  uint64_t late_jobs_ = 0;
  uint64_t passes_in_turn_ = 0;
  uint64_t now_us_ = 1;
  bool changes_ = true;
};

TEST(DeviceTurns, AllDevicesHaveTheSameOrderAndNobodyStarvesWhoeverComesAndGoes) {
  uint64_t passes_in_turn = 0;
  uint64_t late_jobs = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SharedWorkers world(seed, 2 + seed % 4, 2 + seed % 3);
    for (int event = 0; event < 3'000; ++event) world.step();
    world.stop_changes();
    for (int event = 0; event < 2'000; ++event) world.step();
    const auto before = world.commits();
    for (int event = 0; event < 6'000; ++event) world.step();
    const auto after = world.commits();
    for (const auto& [job, had] : before) {
      EXPECT_GT(after.at(job), had + 3) << "seed " << seed << " job " << job << " starves";
    }
    passes_in_turn += world.passes_in_turn();
    late_jobs += world.late_jobs();
  }
  EXPECT_GT(passes_in_turn, 10'000u);
  EXPECT_GT(late_jobs, 25u);
}

}  // namespace
}  // namespace skein::plans
