#include "plans/base/event_rate.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

TEST(EventRate, TellsTheFirstAndThenFewAndCountsTheRest) {
  EventRate rate;
  uint64_t told = 0, counted = 0, now_us = 1'000'000'000;
  constexpr uint64_t kEvents = 100'000;
  for (uint64_t i = 0; i < kEvents; ++i) {
    now_us += 100;  // Ten seconds together.
    told += rate.admit(now_us) ? 1 : 0;
  }
  EXPECT_GE(told, 10u);
  EXPECT_LE(told, 13u);
  EXPECT_EQ(rate.take_held_back(now_us), 0u) << "not yet";
  counted = rate.take_held_back(now_us + 5'000'000);
  EXPECT_EQ(told + counted, kEvents);
  EXPECT_EQ(rate.take_held_back(now_us + 60'000'000), 0u) << "that was all";
}

TEST(EventRate, AsManyAreToldAtOnceAsItsLimitsSay) {
  EventRate rate({.at_once = 3, .every_us = 100});
  for (const bool is_told : {true, true, true, false}) EXPECT_EQ(rate.admit(1000), is_told);
  EXPECT_FALSE(rate.admit(1099));
  EXPECT_TRUE(rate.admit(1100));
  EXPECT_EQ(rate.take_held_back(1200), 2u);
}

TEST(EventRate, RareEventsAreAllTold) {
  EventRate rate;
  for (uint64_t now_us = 0; now_us < 1'000'000'000; now_us += 5'000'000) {
    EXPECT_TRUE(rate.admit(now_us));
  }
}

}  // namespace
}  // namespace skein::plans
