#include "plans/elastic/hold_back.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

constexpr uint64_t kSecond = 1'000'000;

TEST(HoldBack, TheFirstLossIsFree) {
  HoldBack guard;
  EXPECT_EQ(guard.eligible_us({1}, 5), 5u);
  guard.on_lost({1}, 10);
  EXPECT_EQ(guard.eligible_us({1}, 20), 20u);
}

TEST(HoldBack, EachFurtherLossDoublesTheDelayUpToAMinute) {
  HoldBack guard;
  guard.on_lost({1}, 0);
  uint64_t before = 0;
  for (int loss = 2; loss < 20; ++loss) {
    guard.on_lost({1}, static_cast<uint64_t>(loss) * kSecond);
    const uint64_t delay = guard.eligible_us({1}, 0);
    EXPECT_TRUE(delay == 2 * before || before == 0 || delay == before) << loss;
    EXPECT_LE(delay, 64 * kSecond);
    before = delay;
  }
  EXPECT_EQ(before, 64 * kSecond);
  EXPECT_EQ(guard.eligible_us({2}, 7), 7u) << "others are not to blame";
}

TEST(HoldBack, AWorkerThatStaysIsTrustedAgain) {
  HoldBack guard;
  for (uint64_t loss = 0; loss < 5; ++loss) guard.on_lost({1}, loss);
  guard.on_lost({1}, 601 * kSecond);
  EXPECT_EQ(guard.eligible_us({1}, 602 * kSecond), 602 * kSecond);
}

}  // namespace
}  // namespace skein::plans
