#include "plans/coordinator/stop_budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

constexpr double kBudgetSecondUs = 1e6;

TEST(StopBudget, AStepGetsWhatItShouldTakeAndHalfAsMuchAgain) {
  const StopMeasures measures = {10 * kBudgetSecondUs, 4 * kBudgetSecondUs, 0, 0};
  const StopBudget budget = make_stop_budget(measures);
  EXPECT_FALSE(budget.abandons);
  EXPECT_DOUBLE_EQ(budget.step_us, 9 * kBudgetSecondUs);
  EXPECT_THAT(to_text(measures, budget), HasSubstr("should end in 6 s"));
}

TEST(StopBudget, AStepOfWhichNothingIsKnownGetsALittle) {
  EXPECT_DOUBLE_EQ(make_stop_budget({}).step_us, 1.2 * kBudgetSecondUs);
}

TEST(StopBudget, AStepThatWouldTakeTooLongIsAbandonedAtOnce) {
  const StopMeasures measures = {60 * kBudgetSecondUs, 10 * kBudgetSecondUs, 0, 0};
  const StopBudget budget = make_stop_budget(measures);
  EXPECT_TRUE(budget.abandons);
  EXPECT_DOUBLE_EQ(budget.step_us, 0);
  EXPECT_THAT(to_text(measures, budget), HasSubstr("would take 50 s more and is abandoned"));
}

TEST(StopBudget, ACheckpointGetsSeveralTimesWhatTheLastOneTook) {
  const StopBudget quick = make_stop_budget({0, 0, 0.1 * kBudgetSecondUs, 10 * kBudgetSecondUs});
  const StopBudget slow = make_stop_budget({0, 0, 30 * kBudgetSecondUs, 10 * kBudgetSecondUs});
  EXPECT_DOUBLE_EQ(quick.total_us, (1.2 + 10 + 5) * kBudgetSecondUs);
  EXPECT_DOUBLE_EQ(slow.total_us, (1.2 + 10 + 120) * kBudgetSecondUs);
}

}  // namespace
}  // namespace skein::plans
