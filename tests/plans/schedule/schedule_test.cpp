#include "plans/schedule/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "plans/base/rng.hpp"
#include "plans/schedule/validate_schedule.hpp"
#include "tests/plans/schedule/executor.hpp"

namespace skein::plans {
namespace {

constexpr ScheduleKind kStraightKinds[] = {ScheduleKind::kGPipe, ScheduleKind::k1F1B,
                                           ScheduleKind::k1F1BPB, ScheduleKind::kZBH1,
                                           ScheduleKind::kZBH2};

Schedule straight(ScheduleKind kind, int32_t stages, int32_t microbatches, int32_t stash_limit) {
  ScheduleCosts costs;
  costs.stash_limit = stash_limit;
  return *make_schedule(kind, straight_shape(stages, microbatches), costs);
}

void expect_valid(const Schedule& schedule, const ScheduleShape& shape) {
  EXPECT_EQ(validate_schedule(schedule, shape.microbatch_count), absl::OkStatus());
  EXPECT_TRUE(execute(schedule, shape).is_complete);
}

TEST(ScheduleKind, NamesRoundTripAndTheErrorListsAll) {
  const std::string message(parse_schedule_kind("1f1b").status().message());
  EXPECT_THAT(message, testing::HasSubstr("parallelism.pipeline_parallel_schedule = \"1f1b\""));
  EXPECT_THAT(message, testing::HasSubstr("must be one of \"GPipe\", \"1F1B\", \"1F1B-PB\""));
  EXPECT_EQ(schedule_kinds().size(), 8);
  for (ScheduleKind kind : schedule_kinds()) {
    EXPECT_EQ(*parse_schedule_kind(to_text(kind)), kind);
    EXPECT_THAT(message, testing::HasSubstr("\"" + std::string(to_text(kind)) + "\""));
  }
}

TEST(Schedule, EveryListOfOneStagePerRankIsValid) {
  for (ScheduleKind kind : kStraightKinds) {
    for (int32_t stages = 1; stages <= 12; ++stages) {
      for (int32_t microbatches = 1; microbatches <= 24; ++microbatches) {
        SCOPED_TRACE(std::string(to_text(kind)) + " " + std::to_string(stages) + " x " +
                     std::to_string(microbatches));
        expect_valid(straight(kind, stages, microbatches, 0), straight_shape(stages, microbatches));
      }
    }
  }
}

TEST(Schedule, EveryListOfSeveralStagesPerRankIsValid) {
  for (ScheduleKind kind : {ScheduleKind::kInterleaved1F1B, ScheduleKind::kGreedy}) {
    for (int32_t ranks = 1; ranks <= 12; ++ranks) {
      for (int32_t per_rank = 1; per_rank <= 4; ++per_rank) {
        for (int32_t microbatches = 1; microbatches <= 24; ++microbatches) {
          SCOPED_TRACE(std::string(to_text(kind)) + " " + std::to_string(ranks) + " x " +
                       std::to_string(per_rank) + " x " + std::to_string(microbatches));
          const ScheduleShape shape = looped_shape(ranks, per_rank, microbatches);
          const Schedule schedule = *make_schedule(kind, shape);
          EXPECT_EQ(validate_schedule(schedule, microbatches), absl::OkStatus());
        }
      }
    }
  }
}

TEST(Schedule, StagesMayBeOnRanksInAnyOrder) {
  for (ScheduleKind kind : kStraightKinds) {
    ScheduleShape shape = straight_shape(5, 7);
    std::reverse(shape.rank_of_stage.begin(), shape.rank_of_stage.end());
    const Schedule schedule = *make_schedule(kind, shape);
    expect_valid(schedule, shape);
    EXPECT_EQ(schedule[0].front().stage, 4);
  }
}

TEST(Schedule, HoldsAsManyStashesAsPromised) {
  for (int32_t S = 1; S <= 8; ++S) {
    for (int32_t M = 1; M <= 20; ++M) {
      for (int32_t D : {0, 1, 2, 3, 5, 8, 20}) {
        const int32_t room = std::min(M, D == 0 ? M : D);
        auto peak = [&, M](ScheduleKind kind, int32_t s) {
          return stash_peak(straight(kind, S, M, D)[static_cast<size_t>(s)], s);
        };
        for (int32_t s = 0; s < S; ++s) {
          EXPECT_EQ(peak(ScheduleKind::k1F1B, s), std::min(room, S - s));
          EXPECT_EQ(peak(ScheduleKind::k1F1BPB, s), std::min(room, 2 * (S - s) - 1));
          EXPECT_LE(peak(ScheduleKind::kZBH1, s), peak(ScheduleKind::k1F1B, 0));
          EXPECT_LE(peak(ScheduleKind::kZBH2, s), std::min(room, 2 * S - 1));
          if (room == M) {
            EXPECT_EQ(peak(ScheduleKind::kGPipe, s), M);
          }
        }
        if (D == 0) {
          EXPECT_EQ(peak(ScheduleKind::kZBH1, 0), std::min(M, S));
          EXPECT_EQ(peak(ScheduleKind::kZBH2, 0), std::min(M, 2 * S - 1));
        }
      }
    }
  }
}

TEST(Schedule, InterleavedHoldsOneStashMoreThanItsWarmUp) {
  for (int32_t R = 1; R <= 6; ++R) {
    for (int32_t v = 1; v <= 4; ++v) {
      for (int32_t M = R; M <= 24; M += R) {
        const Schedule schedule =
            *make_schedule(ScheduleKind::kInterleaved1F1B, looped_shape(R, v, M));
        for (int32_t r = 0; r < R; ++r) {
          const std::vector<int64_t> ones(static_cast<size_t>(R * v), 1);
          EXPECT_EQ(stash_peak_bytes(schedule[static_cast<size_t>(r)], ones),
                    std::min(v * M, (v - 1) * R + 2 * (R - 1 - r) + 1));
        }
      }
    }
  }
}

TEST(Schedule, RandomCostsAndLimitsAreKept) {
  Rng rng(7);
  int made = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto ranks = static_cast<int32_t>(1 + rng.below(6));
    const auto per_rank = static_cast<int32_t>(1 + rng.below(3));
    const ScheduleShape shape =
        looped_shape(ranks, per_rank, static_cast<int32_t>(1 + rng.below(16)));
    ScheduleCosts costs;
    for (int32_t s = 0; s < shape.stage_count(); ++s) {
      auto time_us = [&] { return 1.0 + static_cast<double>(rng.below(20)); };
      costs.stage_times.push_back({time_us(), time_us(), time_us()});
      costs.stash_bytes.push_back(static_cast<int64_t>(rng.below(10)));
      if (s > 0) costs.transfer_us.push_back(static_cast<double>(rng.below(10)));
    }
    for (int32_t r = 0; r < ranks; ++r) {
      costs.limit_bytes.push_back(static_cast<int64_t>(10 + rng.below(100)));
    }
    for (ScheduleKind kind : schedule_kinds()) {
      const auto schedule = make_schedule(kind, shape, costs);
      if (!schedule.ok()) continue;
      ++made;
      EXPECT_EQ(validate_schedule(*schedule, shape.microbatch_count,
                                  {costs.stash_bytes, costs.limit_bytes}),
                absl::OkStatus())
          << to_text(kind);
    }
  }
  EXPECT_GT(made, 4000);
}

TEST(Schedule, NeverWarmsUpFurtherThanTheStageInFrontFeedsIt) {
  ScheduleCosts costs;
  costs.stash_bytes = {3, 1, 1, 1};
  costs.limit_bytes = {6, 100, 100, 100};  // Stage 0 holds two, the others any number.
  const ScheduleShape shape = straight_shape(4, 8);
  for (ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::k1F1BPB, ScheduleKind::kZBH1}) {
    const Schedule schedule = *make_schedule(kind, shape, costs);
    expect_valid(schedule, shape);
    EXPECT_EQ(stash_peak(schedule[0], 0), 2);
  }
}

TEST(Schedule, SaysWhichRankLacksHowManyBytes) {
  ScheduleCosts costs;
  costs.stash_bytes = {100, 100};
  costs.limit_bytes = {1000, 250};
  const ScheduleShape shape = straight_shape(2, 4);
  const absl::Status gpipe = make_schedule(ScheduleKind::kGPipe, shape, costs).status();
  EXPECT_EQ(gpipe.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(gpipe.message()),
              testing::HasSubstr("GPipe: rank 1 lacks 150 bytes: its stashes need 400"));
  EXPECT_TRUE(make_schedule(ScheduleKind::k1F1B, shape, costs).ok());
  costs.limit_bytes = {1000, 70};
  for (ScheduleKind kind : schedule_kinds()) {
    if (kind == ScheduleKind::kCustom) continue;
    const absl::Status status = make_schedule(kind, shape, costs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << to_text(kind);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank 1 lacks"));
  }
}

TEST(Schedule, RefusesShapesItIsNotMadeFor) {
  const ScheduleShape two_per_rank = looped_shape(2, 2, 4);
  for (ScheduleKind kind : kStraightKinds) {
    EXPECT_THAT(std::string(make_schedule(kind, two_per_rank).status().message()),
                testing::HasSubstr("needs one stage per rank, there are 4 stages on 2 ranks"));
  }
  for (const std::vector<int32_t>& ranks : {std::vector<int32_t>{0, 1, 1, 0}, {0, 1, 0}}) {
    const ScheduleShape shape{.rank_of_stage = ranks, .microbatch_count = 4};
    EXPECT_EQ(make_schedule(ScheduleKind::kInterleaved1F1B, shape).status().code(),
              absl::StatusCode::kInvalidArgument);
    expect_valid(*make_schedule(ScheduleKind::kGreedy, shape), shape);
  }
  EXPECT_THAT(std::string(make_schedule(ScheduleKind::kCustom, two_per_rank).status().message()),
              testing::HasSubstr("is not made but given"));
}

TEST(Schedule, RefusesCostsThatDoNotFitTheShape) {
  const ScheduleShape shape = straight_shape(3, 2);
  std::vector<ScheduleCosts> wrong(9);
  wrong[0].stage_times.resize(2);
  wrong[1].transfer_us = {1, 1, 1};
  wrong[2].stash_bytes = {1};
  wrong[3].limit_bytes = {1, 2, 3, 4};
  wrong[4].stage_times = {{1, 1, 1}, {1, -1, 1}, {1, 1, 1}};
  wrong[5].transfer_us = {0, std::numeric_limits<double>::quiet_NaN()};
  wrong[6].stash_bytes = {1, -1, 1};
  wrong[7].stash_limit = -1;
  wrong[8].stash_limit = 2;
  wrong[8].limit_bytes = {1, 2, 3};
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_EQ(make_schedule(ScheduleKind::k1F1B, shape, wrong[i]).status().code(),
              absl::StatusCode::kInvalidArgument)
        << i;
  }
}

}  // namespace
}  // namespace skein::plans
