#include "plans/worker/reconnect_backoff.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

constexpr double kPatience = 60;

TEST(ReconnectBackoff, TheFirstAttemptIsAtOnceAndLateOnesAreMoreThanASecondApart) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    ReconnectBackoff backoff(seed);
    EXPECT_EQ(backoff.begin(1, kPatience, 0).delay_seconds, 0);
    for (int i = 1; i < 10; ++i) EXPECT_GT(backoff.begin(1, kPatience, 0).delay_seconds, 0);
    for (int i = 10; i < 90; ++i) {
      const double delay = backoff.begin(1, kPatience, 0).delay_seconds;
      EXPECT_GT(delay, 1);
      EXPECT_LT(delay, 2.5) << "a coordinator that was restarted waits so long";
    }
  }
}

TEST(ReconnectBackoff, WorkersDoNotComeAtTheSameMoment) {
  ReconnectBackoff one(1), other(2);
  one.begin(1, kPatience, 0);
  other.begin(1, kPatience, 0);
  EXPECT_NE(one.begin(1, kPatience, 0).delay_seconds, other.begin(1, kPatience, 0).delay_seconds);
}

TEST(ReconnectBackoff, GivesUpWhenNobodyHasAnsweredForTooLong) {
  ReconnectBackoff backoff(1);
  EXPECT_EQ(backoff.begin(1, kPatience, 1'000'000).left_seconds, kPatience);
  EXPECT_GT(backoff.begin(1, kPatience, 50'000'000).left_seconds, 0);
  EXPECT_LE(backoff.begin(1, kPatience, 61'000'000).left_seconds, 0)
      << "connects alone are nothing";
}

TEST(ReconnectBackoff, AnAnswerThatDoesNotLastDoesNotMakeItFaster) {
  ReconnectBackoff backoff(1);
  uint64_t now_us = 0;
  int attempts = 0;
  for (; now_us < 60'000'000; ++attempts) {
    now_us += static_cast<uint64_t>(backoff.begin(1, kPatience, now_us).delay_seconds * 1e6) + 1000;
    backoff.on_joined();
  }
  EXPECT_LT(attempts, 60);
}

TEST(ReconnectBackoff, AnAnsweredJoinBeginsItAnew) {
  ReconnectBackoff backoff(1);
  for (int i = 0; i < 20; ++i) backoff.begin(1, kPatience, 0);
  backoff.on_joined();
  const ReconnectBackoff::Attempt next = backoff.begin(1, kPatience, 100'000'000);
  EXPECT_EQ(next.delay_seconds, 0);
  EXPECT_EQ(next.left_seconds, kPatience);
}

}  // namespace
}  // namespace skein::plans
