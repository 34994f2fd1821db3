#include "plans/schedule/greedy_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/base/rng.hpp"
#include "plans/schedule/validate_schedule.hpp"
#include "tests/plans/schedule/executor.hpp"

namespace skein::plans {
namespace {

constexpr GreedyRule kRules[] = {{.waits = false, .keeps_ahead = false},
                                 {.waits = true, .keeps_ahead = false},
                                 {.waits = false, .keeps_ahead = true},
                                 {.waits = true, .keeps_ahead = true}};

ScheduleShape random_shape(Rng& rng) {
  ScheduleShape shape;
  const auto ranks = static_cast<int32_t>(1 + rng.below(5));
  for (int32_t r = 0; r < ranks; ++r) shape.rank_of_stage.push_back(r);
  for (uint64_t extra = rng.below(8); extra > 0; --extra) {
    const auto place = static_cast<int64_t>(rng.below(shape.rank_of_stage.size() + 1));
    shape.rank_of_stage.insert(shape.rank_of_stage.begin() + place,
                               static_cast<int32_t>(rng.below(static_cast<uint64_t>(ranks))));
  }
  shape.microbatch_count = static_cast<int32_t>(1 + rng.below(12));
  return shape;
}

ScheduleCosts random_costs(Rng& rng, const ScheduleShape& shape) {
  ScheduleCosts costs;
  for (int32_t s = 0; s < shape.stage_count(); ++s) {
    auto time_us = [&] { return static_cast<double>(rng.below(6)); };  // 0 is allowed.
    costs.stage_times.push_back({time_us(), time_us(), time_us()});
    costs.stash_bytes.push_back(static_cast<int64_t>(rng.below(100)));
    if (s > 0) costs.transfer_us.push_back(static_cast<double>(rng.below(6)));
  }
  return costs;
}

TEST(GreedySchedule, NeedsNoMoreThanRoomForOneMicrobatch) {
  Rng rng(11);
  for (int round = 0; round < 3000; ++round) {
    const ScheduleShape shape = random_shape(rng);
    ScheduleCosts costs = random_costs(rng, shape);
    costs.limit_bytes.assign(static_cast<size_t>(shape.rank_count()), 0);
    costs.limit_bytes = microbatch_bytes(shape, costs);
    if (round % 2 == 1) {
      for (int64_t& limit : costs.limit_bytes) limit += static_cast<int64_t>(rng.below(300));
    }
    const auto full = written_out(shape, costs);
    for (const GreedyRule& rule : kRules) {
      const auto timed = greedy_schedule(shape, *full, rule);
      ASSERT_TRUE(timed.ok()) << timed.status();
      EXPECT_EQ(validate_schedule(timed->schedule, shape.microbatch_count,
                                  {costs.stash_bytes, costs.limit_bytes}),
                absl::OkStatus());
    }
  }
}

TEST(GreedySchedule, ItsTimeIsThatOfAnExecution) {
  Rng rng(12);
  for (int round = 0; round < 500; ++round) {
    const ScheduleShape shape = random_shape(rng);
    const auto full = written_out(shape, random_costs(rng, shape));
    for (const GreedyRule& rule : kRules) {
      const auto timed = greedy_schedule(shape, *full, rule);
      // A rank that waits on purpose may start a little earlier when its list is executed.
      EXPECT_LE(execute(timed->schedule, shape, *full).makespan_us, timed->makespan_us);
      if (!rule.waits) {
        EXPECT_EQ(execute(timed->schedule, shape, *full).makespan_us, timed->makespan_us);
      }
    }
  }
}

TEST(GreedySchedule, OneByteLessThanOneMicrobatchIsRefused) {
  ScheduleCosts costs;
  costs.stash_bytes = {10, 20, 30, 40};
  costs.limit_bytes = {40, 59};
  const ScheduleShape shape = looped_shape(2, 2, 3);
  const absl::Status status = make_schedule(ScheduleKind::kGreedy, shape, costs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("rank 1 lacks 1 bytes: one micro-batch stashes 60"));
  costs.limit_bytes = {40, 60};
  EXPECT_TRUE(make_schedule(ScheduleKind::kGreedy, shape, costs).ok());
}

TEST(GreedySchedule, GivesASlowRankNoGapsInSteadyState) {
  // Rank 1 is three times slower: a good order keeps it busy from its first to its last action.
  const ScheduleShape shape = straight_shape(4, 16);
  ScheduleCosts costs;
  costs.stage_times.assign(4, {1, 1, 1});
  costs.stage_times[1] = {3, 3, 3};
  costs.stash_limit = 8;
  const Schedule schedule = *make_schedule(ScheduleKind::kGreedy, shape, costs);
  EXPECT_LE(execute(schedule, shape, costs).idle_us(1), 3);
}

TEST(GreedySchedule, HasNoBubbleButTheRampWithRoom) {
  for (int32_t R = 1; R <= 6; ++R) {
    for (int32_t v = 1; v <= 3; ++v) {
      for (int32_t M = R; M <= 4 * R; M += v == 1 ? 1 : R) {
        const ScheduleShape shape = looped_shape(R, v, M);
        const Schedule schedule = *make_schedule(ScheduleKind::kGreedy, shape);
        // The last rank starts R - 1 forwards late; nobody can do better.
        EXPECT_EQ(execute(schedule, shape).makespan_us, 3 * v * M + R - 1) << R << v << M;
      }
    }
  }
}

TEST(GreedySchedule, IsZBH1WithItsMemory) {
  for (int32_t R = 1; R <= 8; ++R) {
    for (int32_t M = 1; M <= 3 * R; ++M) {
      const ScheduleShape shape = straight_shape(R, M);
      ScheduleCosts costs;
      costs.stash_limit = R;
      EXPECT_EQ(execute(*make_schedule(ScheduleKind::kGreedy, shape, costs), shape).makespan_us,
                execute(*make_schedule(ScheduleKind::kZBH1, shape, costs), shape).makespan_us)
          << R << " x " << M;
    }
  }
}

TEST(GreedySchedule, TakesTheSameOrderTwice) {
  Rng rng(13);
  const ScheduleShape shape = random_shape(rng);
  const ScheduleCosts costs = random_costs(rng, shape);
  EXPECT_EQ(*make_schedule(ScheduleKind::kGreedy, shape, costs),
            *make_schedule(ScheduleKind::kGreedy, shape, costs));
}

}  // namespace
}  // namespace skein::plans
