#include "plans/coordinator/progress_watch.hpp"

#include <gtest/gtest.h>

#include "plans/coordinator/stop_request.hpp"

namespace skein::plans {
namespace {

using Kind = ProgressWatch::Verdict::Kind;

constexpr uint64_t kWatchedSecond = 1'000'000;

JobSpec watched_job() {
  JobSpec job;
  job.elastic.heartbeat_timeout_seconds = 10;
  job.comm.init_timeout_seconds = 60;
  job.comm.train_timeout_seconds = 200;
  return job;
}

Member working(uint32_t worker, double action_s) {
  Member member;
  member.id = {worker};
  member.activity.action = "0B1";
  member.activity.works = action_s > 0;
  member.activity.action_us = action_s * 1e6;
  return member;
}

TEST(ProgressWatch, TheWorkerThatWorksForLongestIsToBlameForALateStep) {
  ProgressWatch watch(watched_job(), 0);
  const Member slow = working(1, 30), slower = working(2, 31), idle = working(3, 0);
  ProgressWatch::Situation situation;
  situation.is_training = true;
  situation.last_step_us = 1e6;
  situation.workers = {&slow, &slower, &idle};
  EXPECT_EQ(watch.check(situation, 20 * kWatchedSecond).kind, Kind::kGoesOn);
  const ProgressWatch::Verdict late = watch.check(situation, 21 * kWatchedSecond);
  EXPECT_EQ(late.kind, Kind::kCulprit);
  EXPECT_EQ(late.culprit, WorkerId{2});
  EXPECT_EQ(late.reason, "its device works on 0B1 for 31 s");
  situation.last_step_us = 0;  // Nobody knows how long a step should take.
  EXPECT_EQ(watch.check(situation, 100 * kWatchedSecond).kind, Kind::kGoesOn);
}

TEST(ProgressWatch, WhoHangsInAPlansFirstStepIsLostBeforeTheRunIsGivenUpAndOnce) {
  ProgressWatch watch(watched_job(), 0);
  const Member hangs = working(1, 199), idle = working(2, 0);
  ProgressWatch::Situation situation;
  situation.is_training = true;
  situation.workers = {&hangs, &idle};
  EXPECT_EQ(watch.check(situation, 200 * kWatchedSecond).kind, Kind::kGoesOn);
  const ProgressWatch::Verdict late = watch.check(situation, 201 * kWatchedSecond);
  EXPECT_EQ(late.kind, Kind::kCulprit);
  EXPECT_EQ(late.culprit, WorkerId{1});
  watch.on_progress(201 * kWatchedSecond);  // The next plan.
  EXPECT_EQ(watch.check(situation, 402 * kWatchedSecond).kind, Kind::kTimedOut);
  watch.on_commit(402 * kWatchedSecond);
  EXPECT_EQ(watch.check(situation, 603 * kWatchedSecond).kind, Kind::kCulprit);
}

TEST(ProgressWatch, WhoHangsBehindTheLastStepIsToBlameAsInOne) {
  ProgressWatch watch(watched_job(), 0);
  const Member hangs = working(1, 30);
  ProgressWatch::Situation situation;
  situation.is_finishing = true;
  situation.last_step_us = 1e6;
  situation.workers = {&hangs};
  EXPECT_EQ(watch.check(situation, 21 * kWatchedSecond).kind, Kind::kCulprit);
}

TEST(ProgressWatch, AStepOnWhichNobodyWorksIsTriedAgainOnceAndThenGivenUp) {
  ProgressWatch watch(watched_job(), 0);
  const Member idle = working(1, 0);
  ProgressWatch::Situation situation;
  situation.is_training = true;
  situation.workers = {&idle};
  EXPECT_EQ(watch.check(situation, 100 * kWatchedSecond).kind, Kind::kGoesOn);
  situation.is_journaling = true;
  EXPECT_EQ(watch.check(situation, 101 * kWatchedSecond).kind, Kind::kGoesOn);
  situation.is_journaling = false;
  EXPECT_EQ(watch.check(situation, 101 * kWatchedSecond).kind, Kind::kStuck);
  EXPECT_EQ(watch.check(situation, 102 * kWatchedSecond).kind, Kind::kGoesOn);
  const ProgressWatch::Verdict over = watch.check(situation, 201 * kWatchedSecond);
  EXPECT_EQ(over.kind, Kind::kTimedOut);
  EXPECT_STREQ(over.limit, "comm.train_timeout_seconds");
  watch.on_commit(300 * kWatchedSecond);
  EXPECT_EQ(watch.check(situation, 401 * kWatchedSecond).kind, Kind::kStuck) << "another step";
}

TEST(ProgressWatch, TimeInWhichOthersHaveTheDevicesIsNotCounted) {
  ProgressWatch watch(watched_job(), 0);
  Member waits = working(1, 0);
  waits.activity.awaits_device = true;
  const Member idle = working(2, 0), works = working(3, 1);
  ProgressWatch::Situation situation;
  situation.is_training = true;
  situation.workers = {&waits, &idle};
  uint64_t second = 0;
  for (; second < 1'000; ++second) {
    EXPECT_EQ(watch.check(situation, second * kWatchedSecond).kind, Kind::kGoesOn);
  }
  ProgressWatch quiescing = watch;
  situation.workers = {&waits, &works};
  for (; second < 1'200; ++second) {
    EXPECT_EQ(watch.check(situation, second * kWatchedSecond).kind, Kind::kGoesOn);
  }
  EXPECT_EQ(watch.check(situation, 1'202 * kWatchedSecond).kind, Kind::kTimedOut);
  situation.is_training = false;  // What a worker that quiesces says of itself is old.
  situation.workers = {&waits};
  for (second = 1'000; second < 1'010; ++second) {
    quiescing.check(situation, second * kWatchedSecond);
  }
  EXPECT_TRUE(quiescing.is_slow_to_answer(waits, 5, second * kWatchedSecond));
}

TEST(ProgressWatch, WithoutAPlanTheTimeToBeginCounts) {
  ProgressWatch watch(watched_job(), 0);
  EXPECT_EQ(watch.check({}, 60 * kWatchedSecond).kind, Kind::kGoesOn);
  const ProgressWatch::Verdict over = watch.check({}, 61 * kWatchedSecond);
  EXPECT_EQ(over.kind, Kind::kTimedOut);
  EXPECT_EQ(over.limit_s, 60);
}

TEST(ProgressWatch, CatchesUpAfterAnOwnPauseWhichExcusesNoLaterNewcomer) {
  ProgressWatch watch(watched_job(), 0);
  watch.on_own_pause(100 * kWatchedSecond, 100 * kWatchedSecond);
  EXPECT_TRUE(watch.is_catching_up(101 * kWatchedSecond));
  EXPECT_FALSE(watch.is_catching_up(100 * kWatchedSecond + kRejoinUs));
  Member member = working(1, 0);
  member.joined_us = 50 * kWatchedSecond;
  member.is_newcomer = true;
  EXPECT_TRUE(watch.may_be_cut_off(member, 101 * kWatchedSecond));
  member.joined_us = 101 * kWatchedSecond;
  EXPECT_FALSE(watch.may_be_cut_off(member, 101 * kWatchedSecond));
  member.is_newcomer = false;
  EXPECT_TRUE(watch.may_be_cut_off(member, 101 * kWatchedSecond)) << "it has connected anew";
}

TEST(ProgressWatch, AMomentsPauseEndsNoCatchingUp) {
  ProgressWatch watch(watched_job(), 0);
  watch.on_own_pause(100 * kWatchedSecond, 100 * kWatchedSecond);
  watch.on_own_pause(kWatchedSecond / 10, 101 * kWatchedSecond);
  EXPECT_TRUE(watch.is_catching_up(102 * kWatchedSecond));
  Member member = working(1, 0);
  member.joined_us = 101 * kWatchedSecond - 1;
  member.is_newcomer = true;
  EXPECT_FALSE(watch.may_be_cut_off(member, 102 * kWatchedSecond)) << "it came after the pause";
}

TEST(StopRequest, GivesAStepItsTimeAndThenTheRun) {
  StopRequest stop;
  EXPECT_FALSE(stop.is_over(UINT64_MAX));
  EXPECT_FALSE(stop.abandons_step(UINT64_MAX));
  const StopBudget budget = stop.make("SIGTERM", {10e6, 0, 1e6, 10e6}, kWatchedSecond);
  const auto step_us = static_cast<uint64_t>(budget.step_us);
  const auto total_us = static_cast<uint64_t>(budget.total_us);
  EXPECT_FALSE(stop.abandons_step(step_us));
  EXPECT_TRUE(stop.abandons_step(step_us + kWatchedSecond));
  EXPECT_FALSE(stop.is_over(total_us));
  EXPECT_TRUE(stop.is_over(total_us + kWatchedSecond));
}

}  // namespace
}  // namespace skein::plans
