#include "plans/elastic/goodput.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Activity = GoodputLedger::Activity;

constexpr uint64_t kSecond = 1'000'000;

/// Began at 100 s, trains since 102 s.
GoodputLedger training() {
  GoodputLedger ledger;
  ledger.begin(100 * kSecond);
  ledger.enter(Activity::kMoving, 101 * kSecond);
  ledger.enter(Activity::kTraining, 102 * kSecond);
  return ledger;
}

TEST(GoodputLedger, HasNothingBeforeItBegins) {
  EXPECT_EQ(GoodputLedger().at(5 * kSecond), Goodput{});
  EXPECT_EQ(GoodputLedger().at(5 * kSecond).ratio(), 0);
}

TEST(GoodputLedger, PutsEveryActivityInItsPart) {
  GoodputLedger ledger = training();
  ledger.on_commit(0, 0, 105 * kSecond);
  ledger.on_commit(1, 2 * kSecond, 109 * kSecond);
  ledger.enter(Activity::kWaiting, 109 * kSecond);
  const Goodput all = ledger.at(114 * kSecond);
  EXPECT_EQ(all, (Goodput{.useful_s = 5, .other_jobs_s = 2, .waiting_s = 6, .moving_s = 1}));
  EXPECT_DOUBLE_EQ(all.ratio(), 5.0 / 14);
}

TEST(GoodputLedger, TakesTheStepInProgressForUseful) {
  EXPECT_EQ(training().at(103 * kSecond).useful_s, 1);
}

TEST(GoodputLedger, TurnsAnAbandonedStepIntoRedoneTime) {
  GoodputLedger ledger = training();
  ledger.on_commit(0, 0, 105 * kSecond);
  ledger.on_abandoned(107 * kSecond);
  ledger.on_commit(1, 0, 110 * kSecond);
  EXPECT_EQ(ledger.at(110 * kSecond).useful_s, 6);
  EXPECT_EQ(ledger.at(110 * kSecond).redone_s, 2);
  EXPECT_EQ(ledger.committed().back(), (CommittedSpan{1, 3 * kSecond}));
}

TEST(GoodputLedger, TakesTheEndOfTrainingForTheEndOfTheStepInProgress) {
  GoodputLedger ledger = training();
  ledger.enter(Activity::kMoving, 104 * kSecond);
  ledger.enter(Activity::kTraining, 105 * kSecond);
  ledger.on_commit(0, 0, 106 * kSecond);
  EXPECT_EQ(ledger.at(106 * kSecond),
            (Goodput{.useful_s = 1, .redone_s = 2, .waiting_s = 1, .moving_s = 2}));
}

TEST(GoodputLedger, TakesACommitThatTheJournalStillWroteForUseful) {
  GoodputLedger ledger = training();
  ledger.enter(Activity::kMoving, 104 * kSecond);
  ledger.on_commit(0, 0, 105 * kSecond);
  EXPECT_EQ(ledger.at(105 * kSecond), (Goodput{.useful_s = 2, .waiting_s = 1, .moving_s = 2}));
  ledger.on_rollback(0, 105 * kSecond);
  EXPECT_EQ(ledger.at(105 * kSecond), (Goodput{.redone_s = 2, .waiting_s = 1, .moving_s = 2}));
}

TEST(GoodputLedger, RollsBackExactlyTheStepsFromTheFirstRedone) {
  for (uint64_t first = 0; first <= 5; ++first) {
    GoodputLedger ledger = training();
    uint64_t now_us = 102 * kSecond;
    for (uint64_t step = 0; step < 5; ++step) {
      now_us += (step + 1) * kSecond;  // Step t takes t + 1 seconds.
      ledger.on_commit(step, 0, now_us);
    }
    ledger.on_rollback(first, now_us);
    const Goodput all = ledger.at(now_us);
    EXPECT_EQ(all.useful_s, static_cast<double>(first * (first + 1)) / 2) << first;
    EXPECT_EQ(all.useful_s + all.redone_s, 15) << first;
    ledger.on_commit(first, 0, now_us + kSecond);  // The same step again.
    EXPECT_EQ(ledger.at(now_us + kSecond).useful_s, all.useful_s + 1) << first;
  }
}

TEST(GoodputLedger, IgnoresARepeatedCommitAndAClockThatStepsBack) {
  GoodputLedger ledger = training();
  ledger.on_commit(7, 0, 105 * kSecond);
  ledger.on_commit(7, 0, 106 * kSecond);
  ledger.on_commit(8, 0, 104 * kSecond);
  EXPECT_EQ(ledger.committed().back(), (CommittedSpan{8, 1 * kSecond}));
  EXPECT_EQ(ledger.at(106 * kSecond).total_s(), 6);
}

TEST(GoodputLedger, KeepsABoundedNumberOfSteps) {
  GoodputLedger ledger = training();
  const uint64_t steps = GoodputLedger::kStepsKept + 10;
  for (uint64_t step = 0; step < steps; ++step) {
    ledger.on_commit(step, 0, 102 * kSecond + (step + 1) * kSecond);
  }
  EXPECT_EQ(ledger.committed().size(), GoodputLedger::kStepsKept);
  const uint64_t now_us = (102 + steps) * kSecond;
  ledger.on_rollback(0, now_us);
  EXPECT_EQ(ledger.at(now_us).useful_s, 10);  // Too old to be known apart.
}

TEST(GoodputLedger, TimeOfOtherJobsIsNotRedone) {
  GoodputLedger ledger = training();
  ledger.on_commit(0, 1 * kSecond, 105 * kSecond);
  ledger.on_rollback(0, 105 * kSecond);
  EXPECT_EQ(ledger.at(105 * kSecond),
            (Goodput{.redone_s = 2, .other_jobs_s = 1, .waiting_s = 1, .moving_s = 1}));
  ledger.on_commit(0, 9 * kSecond, 106 * kSecond);
  EXPECT_EQ(ledger.at(106 * kSecond).other_jobs_s, 2) << "no more than the step took";
}

/// Whatever happens, in whatever order.
TEST(GoodputLedger, SumsToTheElapsedTimeForAnyEvents) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    GoodputLedger ledger;
    const uint64_t begin_us = rng.below(1'000'000'000);
    uint64_t now_us = begin_us;
    uint64_t step = 0;
    ledger.begin(begin_us);
    for (int event = 0; event < 200; ++event) {
      now_us += rng.below(3'000'000);
      const uint64_t kind = rng.below(10);
      const Goodput before = ledger.at(now_us);
      if (kind < 5) {
        ledger.on_commit(step++, rng.below(3) * 500'000, now_us);
      } else if (kind < 8) {
        ledger.enter(static_cast<Activity>(rng.below(3)), now_us);
      } else if (kind == 8) {
        ledger.on_abandoned(now_us);
      } else {
        step = step - rng.below(std::min<uint64_t>(step, 5) + 1);
        ledger.on_rollback(step, now_us);
      }
      const Goodput after = ledger.at(now_us);
      ASSERT_NEAR(after.total_s(), static_cast<double>(now_us - begin_us) / 1e6, 1e-9) << seed;
      // An event only ever turns useful time into redone time or that of other jobs, or a late
      // commit one step back.
      const double had = before.useful_s + before.redone_s + before.other_jobs_s;
      ASSERT_NEAR(after.useful_s + after.redone_s + after.other_jobs_s, had, 1e-9);
      ASSERT_EQ(after.waiting_s, before.waiting_s);
      ASSERT_GE(after.useful_s, 0);
      ASSERT_GE(after.redone_s, 0);
      double spans_s = 0;
      for (const CommittedSpan& span : ledger.committed()) {
        spans_s += static_cast<double>(span.useful_us) / 1e6;
      }
      ASSERT_LE(spans_s, after.useful_s + 1e-9) << seed;
    }
  }
}

TEST(GoodputLedger, APauseOfTheCoordinatorIsWaitingInWhicheverActivity) {
  GoodputLedger ledger;
  ledger.on_own_pause(5'000'000);
  EXPECT_EQ(ledger.at(0).total_s(), 0);
  ledger.begin(0);
  ledger.enter(GoodputLedger::Activity::kTraining, 1'000'000);
  ledger.on_own_pause(7'000'000);
  ledger.on_commit(0, 0, 3'000'000);
  EXPECT_EQ(ledger.at(3'000'000), (Goodput{.useful_s = 2, .waiting_s = 8}));
}

}  // namespace
}  // namespace skein::plans
