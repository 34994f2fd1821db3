#include "plans/coordinator/stop_budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

constexpr double kSecondUs = 1e6;

TEST(StopBudget, AStepGetsWhatItShouldTakeAndHalfAsMuchAgain) {
  const StopMeasures measures = {10 * kSecondUs, 4 * kSecondUs, 0, 0};
  const StopBudget budget = make_stop_budget(measures);
  EXPECT_FALSE(budget.abandons);
  EXPECT_DOUBLE_EQ(budget.step_us, 9 * kSecondUs);
  EXPECT_THAT(to_text(measures, budget), HasSubstr("should end in 6 s"));
}

TEST(StopBudget, AStepOfWhichNothingIsKnownGetsALittle) {
  EXPECT_DOUBLE_EQ(make_stop_budget({}).step_us, 1.2 * kSecondUs);
}

TEST(StopBudget, AStepThatWouldTakeTooLongIsAbandonedAtOnce) {
  const StopMeasures measures = {60 * kSecondUs, 10 * kSecondUs, 0, 0};
  const StopBudget budget = make_stop_budget(measures);
  EXPECT_TRUE(budget.abandons);
  EXPECT_DOUBLE_EQ(budget.step_us, 0);
  EXPECT_THAT(to_text(measures, budget), HasSubstr("would take 50 s more and is abandoned"));
}

TEST(StopBudget, ACheckpointGetsSeveralTimesWhatTheLastOneTook) {
  const StopBudget quick = make_stop_budget({0, 0, 0.1 * kSecondUs, 10 * kSecondUs});
  const StopBudget slow = make_stop_budget({0, 0, 30 * kSecondUs, 10 * kSecondUs});
  EXPECT_DOUBLE_EQ(quick.total_us, (1.2 + 10 + 5) * kSecondUs);
  EXPECT_DOUBLE_EQ(slow.total_us, (1.2 + 10 + 120) * kSecondUs);
}

}  // namespace
}  // namespace skein::plans
