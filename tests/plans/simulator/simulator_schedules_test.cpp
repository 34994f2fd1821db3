#include <gtest/gtest.h>

#include "plans/schedule/schedule_makespan.hpp"
#include "plans/simulator/simulator.hpp"
#include "tests/plans/simulator/pipelines.hpp"

namespace skein::plans {
namespace {

struct Case {
  ScheduleShape shape;
  ScheduleCosts costs;
};

/// Uneven stages, looped over the ranks where there are several per rank.
Case make_case(int32_t ranks, int32_t stages_per_rank, int32_t M, double transfer_us) {
  Case result;
  result.shape = looped_shape(ranks, stages_per_rank, M);
  const int32_t S = result.shape.stage_count();
  for (int32_t s = 0; s < S; ++s) {
    result.costs.stage_times.push_back({5.0 + s % 3, 6.0 - s % 2, 4.0 + s % 4});
  }
  result.costs.transfer_us.assign(static_cast<size_t>(S) - 1, transfer_us);
  return result;
}

Plan plan_of(const Case& wanted, const Schedule& actions) {
  PipelineShape shape;
  shape.layers.assign(wanted.shape.rank_of_stage.size(), 1);
  shape.replicas.assign(shape.layers.size(), 1);
  shape.M = wanted.shape.microbatch_count;
  Plan plan = looped_pipeline(shape, wanted.shape.rank_count());
  plan.actions = actions;
  return plan;
}

double simulated_us(const Case& wanted, const Schedule& actions, double latency_us) {
  Profile profile = equal_layers(wanted.shape.stage_count(), 0, 0, 1);
  for (size_t l = 0; l < profile.layers.size(); ++l) {
    const StageTimes& times = wanted.costs.stage_times[l];
    profile.layers[l].at = {{times.forward_us, times.backward_input_us, times.backward_weight_us}};
  }
  ClusterSpec cluster = equal_cluster(wanted.shape.rank_count(), wanted.shape.rank_count(), 1e9);
  cluster.hosts[0].inside.latency_us = latency_us;
  const auto simulation = simulate(plan_of(wanted, actions), profile, cluster, {});
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? simulation->step_us : 0;
}

TEST(SimulatorSchedules, WithoutContentionEveryScheduleTakesItsLongestPath) {
  int checked = 0;
  for (ScheduleKind kind : schedule_kinds()) {
    for (int32_t ranks = 1; ranks <= 5; ++ranks) {
      for (int32_t stages_per_rank = 1; stages_per_rank <= 3; ++stages_per_rank) {
        for (double transfer_us : {0.0, 3.5}) {
          const Case wanted = make_case(ranks, stages_per_rank, 2 * ranks, transfer_us);
          const auto actions = make_schedule(kind, wanted.shape, wanted.costs);
          if (!actions.ok()) continue;  // Not made for this shape.
          const auto costs = written_out(wanted.shape, wanted.costs);
          ASSERT_TRUE(costs.ok()) << costs.status();
          EXPECT_NEAR(simulated_us(wanted, *actions, transfer_us),
                      makespan_us(*actions, wanted.shape, *costs), 1e-9)
              << to_text(kind) << ", " << ranks << " ranks of " << stages_per_rank;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 100);  // All kinds but the hand-written one, most shapes.
}

/// Step time of DAPPLE's policy PA over that of PB (PPoPP'21, section 3.2) for F = 10, B = 20, M =
/// 32 and transfers both ways that take `ratio` of F + B.
double gain_of_policy_b(int64_t S, double ratio) {
  Profile profile = equal_layers(S, 10, 20, 1);
  for (LayerProfile& layer : profile.layers) {
    layer.activation_row_bytes = static_cast<int64_t>(ratio / 2 * 30 * 1000);
  }
  const ClusterSpec cluster = equal_cluster(static_cast<int32_t>(S), 1, 1e9);
  auto step_us = [&](ScheduleKind kind) {
    return simulate(straight_pipeline(S, 32, kind), profile, cluster, {})->step_us;
  };
  return step_us(ScheduleKind::k1F1B) / step_us(ScheduleKind::k1F1BPB);
}

TEST(SimulatorSchedules, DapplesPolicyBGainsWhatTransfersCost) {
  struct Gain {
    double ratio, least, most;
  };
  // What another simulator of both policies gave, with room for its two digits.
  for (const Gain& gain :
       {Gain{0, 1, 1}, Gain{0.06, 1.03, 1.04}, Gain{0.10, 1.05, 1.07}, Gain{0.16, 1.07, 1.11},
        Gain{0.30, 1.14, 1.20}, Gain{0.50, 1.22, 1.32}}) {
    for (int64_t S : {4, 8, 16}) {
      EXPECT_GE(gain_of_policy_b(S, gain.ratio), gain.least - 0.005) << S << " stages";
      EXPECT_LE(gain_of_policy_b(S, gain.ratio), gain.most + 0.005) << S << " stages";
    }
  }
}

}  // namespace
}  // namespace skein::plans
