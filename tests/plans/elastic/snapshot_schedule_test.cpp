#include "plans/elastic/snapshot_schedule.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

constexpr double kPatienceSeconds = 300;
constexpr uint64_t kPatienceUs = 300'000'000;
constexpr WorkerId kFirstWorker{1};
constexpr WorkerId kSecondWorker{2};

/// Two stages that keep each other's snapshots.
SnapshotSchedule two_stages(int64_t interval, uint64_t first_step = 0) {
  SnapshotSchedule schedule(interval, kPatienceSeconds);
  schedule.begin_generation({kFirstWorker, kSecondWorker}, {kSecondWorker, kFirstWorker},
                            first_step);
  return schedule;
}

void keep_all(SnapshotSchedule& schedule, uint64_t steps_done) {
  for (int32_t stage : {0, 1}) {
    schedule.on_kept(kFirstWorker, stage, steps_done);
    schedule.on_kept(kSecondWorker, stage, steps_done);
  }
}

TEST(SnapshotSchedule, IsDueEveryIntervalAfterTheFirstStep) {
  SnapshotSchedule schedule = two_stages(3, 10);
  EXPECT_FALSE(schedule.is_due(10));
  EXPECT_TRUE(schedule.is_due(11)) << "a second loss must find something";
  schedule.on_ordered(11, 0);
  EXPECT_FALSE(schedule.is_due(13));
  EXPECT_TRUE(schedule.is_due(14));
  schedule.on_ordered(14, 0);
  EXPECT_FALSE(schedule.is_due(16));
  EXPECT_TRUE(schedule.is_due(17));
}

TEST(SnapshotSchedule, AStageWithoutSnapshotPeerOrAnIntervalOfZeroTurnsThemOff) {
  EXPECT_FALSE(two_stages(0).is_due(100));
  SnapshotSchedule alone(1, kPatienceSeconds);
  alone.begin_generation({kFirstWorker}, {WorkerId{0}}, 0);
  EXPECT_FALSE(alone.is_due(100));
}

TEST(SnapshotSchedule, OnlyAWholeSetMovesTheFloor) {
  SnapshotSchedule schedule = two_stages(1);
  schedule.on_ordered(1, 0);
  EXPECT_EQ(schedule.on_kept(kFirstWorker, 0, 1), std::nullopt);
  EXPECT_EQ(schedule.on_kept(kSecondWorker, 0, 1), std::nullopt);
  EXPECT_EQ(schedule.on_kept(kSecondWorker, 1, 1), std::nullopt);
  EXPECT_EQ(schedule.on_kept(kSecondWorker, 1, 1), DropReason::kRepeated);
  EXPECT_EQ(schedule.on_kept(WorkerId{9}, 1, 1), DropReason::kNotAllowed);
  EXPECT_EQ(schedule.on_kept(kFirstWorker, 7, 1), DropReason::kNotAllowed);
  EXPECT_EQ(schedule.on_kept(kFirstWorker, 1, 0), DropReason::kStale);
  EXPECT_EQ(schedule.on_kept(kFirstWorker, 1, 2), DropReason::kUnexpected);
  EXPECT_EQ(schedule.floor(), 0u) << "the snapshot peer of stage 1 has not spoken";
  schedule.on_kept(kFirstWorker, 1, 1);
  EXPECT_EQ(schedule.floor(), 1u);
  keep_all(schedule, 7);
  EXPECT_EQ(schedule.floor(), 1u) << "nobody ordered that";
}

TEST(SnapshotSchedule, ASetWaitsUntilTheOneBeforeIsWhole) {
  SnapshotSchedule schedule = two_stages(1);
  EXPECT_FALSE(schedule.must_wait(0)) << "none is under way";
  schedule.on_ordered(1, 0);
  EXPECT_TRUE(schedule.is_due(2));
  EXPECT_TRUE(schedule.must_wait(1));
  keep_all(schedule, 1);
  EXPECT_FALSE(schedule.must_wait(2));
}

TEST(SnapshotSchedule, ANewerSetReplacesOneThatNeverBecameWhole) {
  SnapshotSchedule schedule = two_stages(1);
  schedule.on_ordered(1, 0);
  EXPECT_TRUE(schedule.must_wait(kPatienceUs - 1));
  EXPECT_FALSE(schedule.must_wait(kPatienceUs));
  schedule.on_ordered(3, kPatienceUs);
  keep_all(schedule, 1);
  EXPECT_EQ(schedule.floor(), 0u) << "given up";
  keep_all(schedule, 3);
  EXPECT_EQ(schedule.floor(), 3u);
  keep_all(schedule, 2);
  EXPECT_EQ(schedule.floor(), 3u) << "never goes back";
}

TEST(SnapshotSchedule, AChosenIntervalKeepsTheCostUnderItsShare) {
  for (uint64_t copy_us : {50, 500, 5000, 50000}) {
    for (double step_us : {1e3, 5e4, 1e6}) {
      SnapshotSchedule schedule = two_stages(-1);
      schedule.on_cost(copy_us, step_us);
      const double share =
          static_cast<double>(copy_us) / (static_cast<double>(schedule.interval()) * step_us);
      EXPECT_TRUE(share <= kSnapshotShareMax || schedule.interval() == kSnapshotIntervalMax)
          << copy_us << " " << step_us << " " << schedule.interval();
    }
  }
  SnapshotSchedule given = two_stages(5);
  given.on_cost(1'000'000, 1);
  EXPECT_EQ(given.interval(), 5u) << "what the user asked for";
}

}  // namespace
}  // namespace skein::plans
