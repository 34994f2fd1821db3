#include "plans/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plans/timeline.hpp"

namespace skein::plans {
namespace {

std::vector<std::vector<Action>> all_stages(ScheduleKind kind, int32_t stages,
                                            int32_t microbatches) {
  std::vector<std::vector<Action>> lists;
  for (int32_t s = 0; s < stages; ++s) {
    lists.push_back(schedule_actions(kind, s, stages, microbatches));
  }
  return lists;
}

TEST(Schedule, EveryListCanBeExecuted) {
  for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B}) {
    for (int32_t stages = 1; stages <= 6; ++stages) {
      for (int32_t microbatches = 1; microbatches <= 9; ++microbatches) {
        EXPECT_TRUE(validate_schedule(all_stages(kind, stages, microbatches), microbatches).ok())
            << stages << " x " << microbatches;
      }
    }
  }
}

TEST(Schedule, OneForwardOneBackwardHoldsAtMostTheStagesBehind) {
  for (int32_t stages = 1; stages <= 6; ++stages) {
    for (int32_t microbatches = 1; microbatches <= 9; ++microbatches) {
      for (int32_t s = 0; s < stages; ++s) {
        EXPECT_EQ(stash_peak(schedule_actions(ScheduleKind::k1F1B, s, stages, microbatches)),
                  std::min(microbatches, stages - s));
        EXPECT_EQ(stash_peak(schedule_actions(ScheduleKind::kGPipe, s, stages, microbatches)),
                  microbatches);
      }
    }
  }
}

TEST(Schedule, MakespanOfEqualStagesIsTheClosedForm) {
  constexpr double kForward = 10, kBackward = 20;
  for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B}) {
    for (int32_t stages = 1; stages <= 6; ++stages) {
      for (int32_t microbatches = 1; microbatches <= 9; ++microbatches) {
        const std::vector<StageTimes> times(static_cast<size_t>(stages), {kForward, kBackward});
        const auto timeline = execute_schedule(all_stages(kind, stages, microbatches), times, 0);
        ASSERT_TRUE(timeline.ok());
        EXPECT_DOUBLE_EQ(timeline->makespan_us,
                         (microbatches + stages - 1) * (kForward + kBackward));
        EXPECT_NEAR(timeline->bubble(), (stages - 1.0) / (microbatches + stages - 1), 1e-12);
      }
    }
  }
}

TEST(Schedule, TextFormsRoundTrip) {
  const auto stages = all_stages(ScheduleKind::k1F1B, 4, 6);
  const auto parsed = parse_csv(to_csv(stages));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, stages);
  EXPECT_EQ(to_csv(stages).substr(0, 24), "0F0,0F1,0F2,0F3,0B0,0F4,");
}

TEST(Schedule, RefusesTextThatIsNoAction) {
  for (const char* text : {"", "F", "0X1", "0F", "F1", "0F1x", "-1F0", "0F-1"}) {
    EXPECT_FALSE(parse_action(text).ok()) << text;
  }
}

TEST(ValidateSchedule, NamesTheFirstOffendingAction) {
  auto message = [](const char* csv, int32_t microbatches) {
    return std::string(validate_schedule(*parse_csv(csv), microbatches).message());
  };
  EXPECT_THAT(message("0B0,0F0\n", 1), testing::HasSubstr("0B0"));
  EXPECT_THAT(message("0F0,0F0,0B0\n", 1), testing::HasSubstr("0F0"));
  EXPECT_THAT(message("0F0,0W0\n", 1), testing::HasSubstr("0W0"));
  EXPECT_THAT(message("0F0,0B0\n", 2), testing::HasSubstr("micro-batch 1"));
  // Stage 0 waits for a backward that stage 1 runs only after a forward stage 0 has not sent.
  EXPECT_THAT(message("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", 2), testing::HasSubstr("deadlock"));
}

TEST(ValidateSchedule, AcceptsSplitBackwards) {
  EXPECT_TRUE(validate_schedule(*parse_csv("0F0,0F1,0I0,0I1,0W0,0W1\n"), 2).ok());
}

}  // namespace
}  // namespace skein::plans
