#include "plans/schedule/validate_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "plans/base/rng.hpp"
#include "plans/schedule/schedule.hpp"
#include "plans/schedule/schedule_csv.hpp"
#include "tests/plans/schedule/executor.hpp"

namespace skein::plans {
namespace {

std::string message(const char* csv, int32_t microbatches) {
  return std::string(validate_schedule(*parse_csv(csv), microbatches).message());
}

TEST(ValidateSchedule, NamesTheFirstOffendingAction) {
  using testing::HasSubstr;
  EXPECT_THAT(message("0B0,0F0\n", 1), HasSubstr("rank 0, action 0 (0B0): a backward stands"));
  EXPECT_THAT(message("0F0,0F0,0B0\n", 1), HasSubstr("rank 0, action 1 (0F0): this forward app"));
  EXPECT_THAT(message("0F0,0B0,0I0\n", 1), HasSubstr("rank 0, action 2 (0I0): this backward"));
  EXPECT_THAT(message("0F0,0I0,0W0,0W0\n", 1), HasSubstr("rank 0, action 3 (0W0): this backward"));
  EXPECT_THAT(message("0F0,0W0\n", 1), HasSubstr("rank 0, action 1 (0W0): a W stands before"));
  EXPECT_THAT(message("0F0,0B0,0F1,0B1\n", 1), HasSubstr("action 2 (0F1): there are 1 micro-"));
  EXPECT_THAT(message("0F0,0B0,1F0\n1B0\n", 1), HasSubstr("rank 1, action 0 (1B0): stage 1 is on"));
}

TEST(ValidateSchedule, NamesWhatIsMissing) {
  using testing::HasSubstr;
  EXPECT_THAT(message("0F0,0B0\n", 2), HasSubstr("stage 0 lacks the forward of micro-batch 1"));
  EXPECT_THAT(message("0F0,0I0\n", 1), HasSubstr("stage 0 lacks a backward"));
  EXPECT_THAT(message("0F0,0B0\n2F0,2B0\n", 1), HasSubstr("no rank has actions of stage 1"));
  EXPECT_THAT(message("0F0,0B0\n2000000000F0\n", 1), HasSubstr("(2000000000F0): there cannot be"));
  EXPECT_THAT(message("", 1), HasSubstr("no actions"));
  EXPECT_THAT(message("0F0,0B0\n", 0), HasSubstr("there are 0"));
}

TEST(ValidateSchedule, NamesTheActionThatNeverGetsItsInput) {
  // Stage 0 waits for a backward that stage 1 runs only after a forward stage 0 has not sent.
  EXPECT_EQ(message("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", 2),
            "rank 0, action 1 (0B0): deadlock, its input from stage 1 on rank 1 never comes");
  EXPECT_EQ(message("1F0,0F0,1B0,0B0\n", 1),
            "rank 0, action 0 (1F0): deadlock, its input from stage 0 on rank 0 never comes");
}

TEST(ValidateSchedule, NamesTheFirstActionThatExceedsTheMemory) {
  const Schedule schedule = *make_schedule(ScheduleKind::k1F1B, straight_shape(3, 5));
  const std::vector<int64_t> stashes = {10, 20, 30};
  EXPECT_TRUE(validate_schedule(schedule, 5, {stashes, {30, 40, 30}}).ok());
  const absl::Status status = validate_schedule(schedule, 5, {stashes, {30, 39, 30}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("rank 1, action 1 (1F1): its stash of 20 bytes exceeds the limit "
                                 "of 39 by 1"));
  EXPECT_EQ(validate_schedule(schedule, 5, {{10, 20}, {30, 40, 30}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(validate_schedule(schedule, 5, {stashes, {30, 40}}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ValidateSchedule, AStashLastsUntilTheWeightBackward) {
  const Schedule schedule = *parse_csv("0F0,0I0,0F1,0I1,0W0,0W1\n");
  EXPECT_TRUE(validate_schedule(schedule, 2, {{1}, {2}}).ok());
  EXPECT_THAT(std::string(validate_schedule(schedule, 2, {{1}, {1}}).message()),
              testing::HasSubstr("action 2 (0F1)"));
}

TEST(ValidateSchedule, AgreesWithAnExecutionOfShuffledLists) {
  Rng rng(3);
  int valid = 0;
  for (int round = 0; round < 4000; ++round) {
    const ScheduleShape shape = looped_shape(2, static_cast<int32_t>(1 + rng.below(2)), 2);
    Schedule schedule = *make_schedule(ScheduleKind::kGreedy, shape);
    for (uint64_t swaps = rng.below(6); swaps > 0; --swaps) {
      ActionList& actions = schedule[rng.below(2)];
      const size_t i = rng.below(actions.size() - 1);
      std::swap(actions[i], actions[i + 1]);
    }
    // The execution does not know that backwards follow the forward of their own stage.
    bool is_ordered = true;
    for (const ActionList& actions : schedule) {
      for (size_t i = 0; i < actions.size(); ++i) {
        for (size_t k = i + 1; k < actions.size(); ++k) {
          is_ordered &= actions[k].stage != actions[i].stage ||
                        actions[k].microbatch != actions[i].microbatch ||
                        actions[k].type > actions[i].type;
        }
      }
    }
    const bool is_valid = validate_schedule(schedule, 2).ok();
    EXPECT_EQ(is_valid, is_ordered && execute(schedule, shape).is_complete);
    valid += is_valid ? 1 : 0;
  }
  EXPECT_GT(valid, 400);
  EXPECT_LT(valid, 3600);
}

TEST(ValidateSchedule, ManyMicrobatchesThatAreNotThereCostNothing) {
  const auto many = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(message("0F0,0B0\n", many), testing::HasSubstr("of micro-batch 1"));
  EXPECT_THAT(message("0F2000000000,0B2000000000\n", many), testing::HasSubstr("micro-batch 0"));
}

TEST(ValidateSchedule, TakesLargeSchedules) {
  const ScheduleShape shape = looped_shape(64, 4, 256);
  for (ScheduleKind kind : {ScheduleKind::kInterleaved1F1B, ScheduleKind::kGreedy}) {
    Schedule schedule = *make_schedule(kind, shape);
    EXPECT_EQ(validate_schedule(schedule, 256), absl::OkStatus());
    // Backwards of all micro-batches from the last to the first: every rank waits for its last one.
    std::swap(schedule[63].front(), schedule[63].back());
    EXPECT_EQ(validate_schedule(schedule, 256).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace skein::plans
