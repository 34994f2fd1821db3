#include <gtest/gtest.h>

#include <algorithm>

#include "plans/schedule/schedule.hpp"
#include "tests/plans/schedule/executor.hpp"

namespace skein::plans {
namespace {

/// Equal stages, no transfer time. `check(execution, F, I, W, R, M)` for F, I, W in 1..4.
template <class Check>
void for_equal_stages(ScheduleKind kind, int32_t ranks_max, const Check& check) {
  for (int times = 0; times < 64; ++times) {
    const StageTimes stage{1.0 + times % 4, 1.0 + times / 4 % 4, 1.0 + times / 16};
    for (int32_t R = 1; R <= ranks_max; ++R) {
      for (int32_t M = 1; M <= 3 * R; ++M) {
        const ScheduleShape shape = straight_shape(R, M);
        ScheduleCosts costs;
        costs.stage_times.assign(static_cast<size_t>(R), stage);
        SCOPED_TRACE(testing::Message()
                     << to_text(kind) << " R=" << R << " M=" << M << " F=" << stage.forward_us
                     << " I=" << stage.backward_input_us << " W=" << stage.backward_weight_us);
        check(execute(*make_schedule(kind, shape, costs), shape, costs), stage, R, M);
      }
    }
  }
}

double total_us(const StageTimes& t) {
  return t.forward_us + t.backward_input_us + t.backward_weight_us;
}

TEST(ScheduleClosedForms, MakespanOfWholeBackwardsIsMAndSMinusOne) {
  for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::k1F1BPB}) {
    for_equal_stages(kind, 5, [](const Execution& run, const StageTimes& t, int32_t S, int32_t M) {
      EXPECT_DOUBLE_EQ(run.makespan_us, (M + S - 1) * total_us(t));
    });
  }
}

TEST(ScheduleClosedForms, BubbleOfInterleavedIsThatOfOneVirtualStage) {
  for (int32_t R = 1; R <= 6; ++R) {
    for (int32_t v = 1; v <= 4; ++v) {
      for (int32_t M = R; M <= 4 * R; ++M) {
        for (double backward_us : {1.0, 2.0, 3.0}) {
          const ScheduleShape shape = looped_shape(R, v, M);
          ScheduleCosts costs;
          costs.stage_times.assign(static_cast<size_t>(R * v), {1.5, backward_us, 0});
          const Schedule schedule = *make_schedule(ScheduleKind::kInterleaved1F1B, shape, costs);
          EXPECT_DOUBLE_EQ(execute(schedule, shape, costs).makespan_us,
                           (M * v + R - 1) * (1.5 + backward_us))
              << R << " x " << v << " x " << M;
        }
      }
    }
  }
}

TEST(ScheduleClosedForms, BubbleOfZBH1) {
  for_equal_stages(ScheduleKind::kZBH1, 5,
                   [](const Execution& run, const StageTimes& t, int32_t R, int32_t M) {
                     if (M < R) return;
                     const double F = t.forward_us;
                     const double I = t.backward_input_us;
                     const double W = t.backward_weight_us;
                     const double bubble_us = run.makespan_us - M * (F + I + W);
                     EXPECT_DOUBLE_EQ(bubble_us, (R - 1) * std::max({F, I, F + I - W}));
                     if (W <= std::min(F, I)) {
                       EXPECT_DOUBLE_EQ(bubble_us, (R - 1) * (F + I - W));
                     }
                   });
}

TEST(ScheduleClosedForms, RanksOfZBH2DoNotIdleOnceTheyHaveBegun) {
  for_equal_stages(ScheduleKind::kZBH2, 5,
                   [](const Execution& run, const StageTimes& t, int32_t R, int32_t M) {
                     if (M < 2 * R - 1) return;
                     const double F = t.forward_us;
                     const double I = t.backward_input_us;
                     const double W = t.backward_weight_us;
                     double idle_us = 0;
                     for (size_t r = 0; r < run.busy_us.size(); ++r)
                       idle_us = std::max(idle_us, run.idle_us(r));
                     EXPECT_DOUBLE_EQ(idle_us, (R - 1) * std::max({0.0, I - F, F + I - 2 * W}));
                     if (F == I && I == W) {
                       EXPECT_DOUBLE_EQ(idle_us, 0);
                     }
                     EXPECT_DOUBLE_EQ(run.makespan_us - M * (F + I + W),
                                      (R - 1) * std::max({F, I - F, F + I - 2 * W}));
                   });
}

TEST(ScheduleClosedForms, ZeroBubbleIsNeverLongerThan1F1B) {
  for (int32_t R = 1; R <= 6; ++R) {
    for (int32_t M = 1; M <= 14; ++M) {
      const ScheduleShape shape = straight_shape(R, M);
      ScheduleCosts costs;  // Stages that differ.
      for (int32_t s = 0; s < R; ++s) {
        costs.stage_times.push_back({1.0 + s % 3, 1.0 + s % 2, 1.0 + s % 4 / 2.0});
      }
      auto time_us = [&](ScheduleKind kind) {
        return execute(*make_schedule(kind, shape, costs), shape, costs).makespan_us;
      };
      EXPECT_LE(time_us(ScheduleKind::kZBH1), time_us(ScheduleKind::k1F1B)) << R << " x " << M;
      EXPECT_LE(time_us(ScheduleKind::kZBH2), time_us(ScheduleKind::kZBH1)) << R << " x " << M;
    }
  }
}

TEST(ScheduleClosedForms, PolicyPBHidesTransfersThatPADoesNot) {
  const ScheduleShape shape = straight_shape(6, 32);
  ScheduleCosts costs;
  costs.stage_times.assign(6, {1, 1, 1});
  costs.transfer_us.assign(5, 1.5);
  const double pa_us =
      execute(*make_schedule(ScheduleKind::k1F1B, shape), shape, costs).makespan_us;
  const double pb_us =
      execute(*make_schedule(ScheduleKind::k1F1BPB, shape), shape, costs).makespan_us;
  EXPECT_LT(pb_us * 1.1, pa_us);
}

}  // namespace
}  // namespace skein::plans
