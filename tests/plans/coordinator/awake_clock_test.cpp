#include "plans/coordinator/awake_clock.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

constexpr uint64_t kPeriodUs = 200;
constexpr uint64_t kSlackUs = 100;
constexpr uint64_t kStartUs = 5000;

AwakeClock awake_since_start() { return AwakeClock(kPeriodUs, kSlackUs, kStartUs); }

TEST(AwakeClock, ATickThatIsALittleLateIsNoPause) {
  AwakeClock clock = awake_since_start();
  clock.on_tick(kStartUs + kPeriodUs + kSlackUs);
  EXPECT_EQ(clock.now_us(kStartUs + 400), kStartUs + 400);
  EXPECT_EQ(clock.take_pause_us(), 0);
}

TEST(AwakeClock, StandsWhereTheNextTickWasDue) {
  AwakeClock clock = awake_since_start();
  EXPECT_EQ(clock.now_us(kStartUs + 50'000), kStartUs + kPeriodUs);
  EXPECT_EQ(clock.take_pause_us(), 50'000 - kPeriodUs);
  EXPECT_EQ(clock.take_pause_us(), 0) << "each pause is told once";
}

TEST(AwakeClock, GoesOnFromThereAndNeverBack) {
  AwakeClock clock = awake_since_start();
  const uint64_t before = clock.now_us(kStartUs + 250);  // Late, and not yet too late.
  const uint64_t woken = clock.now_us(kStartUs + 10'000);
  EXPECT_EQ(woken, before) << "the tick was due before that";
  EXPECT_EQ(clock.now_us(kStartUs + 10'070), woken + 70);
}

TEST(AwakeClock, PausesAddUpUntilTheyAreTaken) {
  AwakeClock clock = awake_since_start();
  clock.on_tick(kStartUs + 1200);  // A pause of 1,000.
  clock.on_tick(kStartUs + 1400);
  clock.on_tick(kStartUs + 3600);  // One of 2,000.
  EXPECT_EQ(clock.take_pause_us(), 3000);
  EXPECT_EQ(clock.now_us(kStartUs + 3600), kStartUs + 600);
}

}  // namespace
}  // namespace skein::plans
