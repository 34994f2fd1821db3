#include "plans/simulator/simulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/plans/simulator/pipelines.hpp"

namespace skein::plans {
namespace {

constexpr double kForward = 10, kBackward = 21;
constexpr ScheduleKind kKinds[] = {ScheduleKind::kGPipe, ScheduleKind::k1F1B};

Simulation run(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
               const SimulationOptions& options = {}) {
  auto simulation = simulate(plan, profile, cluster, options);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? *std::move(simulation) : Simulation{};
}

Simulation run_straight(int64_t S, int64_t M, ScheduleKind kind,
                        const SimulationOptions& options = {}) {
  return run(straight_pipeline(S, M, kind), equal_layers(S, kForward, kBackward, 1),
             equal_cluster(static_cast<int32_t>(S), 1, 1e9), options);
}

TEST(Simulator, EqualStagesTakeTheClosedForm) {
  constexpr int64_t M = 32;
  for (ScheduleKind kind : kKinds) {
    for (int64_t S : {1, 2, 4, 8, 16}) {
      const Simulation simulation = run_straight(S, M, kind);
      EXPECT_DOUBLE_EQ(simulation.step_us, static_cast<double>(M + S - 1) * (kForward + kBackward));
      EXPECT_NEAR(simulation.bubble, static_cast<double>(S - 1) / static_cast<double>(M + S - 1),
                  1e-12);
      EXPECT_TRUE(simulation.reductions.empty());
    }
  }
}

TEST(Simulator, GPipeWithUnevenStagesWaitsForTheSlowestOncePerMicrobatch) {
  const std::vector<double> forward = {7, 12, 3, 12, 5}, backward = {4, 30, 31, 9, 2};
  for (int64_t M = 1; M <= 9; ++M) {
    Profile profile = equal_layers(5, 0, 0, 1);
    for (size_t s = 0; s < 5; ++s) profile.layers[s].at = {{forward[s], 0, backward[s]}};
    const Simulation simulation =
        run(straight_pipeline(5, M, ScheduleKind::kGPipe), profile, equal_cluster(5, 1, 1e9));
    auto phase = [M](const std::vector<double>& us) {
      return std::accumulate(us.begin(), us.end(), 0.0) +
             static_cast<double>(M - 1) * *std::max_element(us.begin(), us.end());
    };
    EXPECT_DOUBLE_EQ(simulation.step_us, phase(forward) + phase(backward));
  }
}

TEST(Simulator, ASlowDeviceTakesItsSpeedTimesLonger) {
  ClusterSpec cluster = equal_cluster(1, 1, 1e9);
  cluster.devices[0].speed = 0.25;
  const Simulation simulation = run(straight_pipeline(1, 3, ScheduleKind::k1F1B),
                                    equal_layers(1, kForward, kBackward, 1), cluster);
  EXPECT_DOUBLE_EQ(simulation.step_us, 4 * 3 * (kForward + kBackward));
}

TEST(Simulator, ATransferTakesItsBytesAndTheLatencyOnce) {
  ClusterSpec cluster = equal_cluster(2, 1, 1e9);  // 1000 bytes per microsecond.
  for (ClusterHost& host : cluster.hosts) host.network.latency_us = 3;
  Profile profile = equal_layers(2, kForward, kBackward, 1);
  profile.layers[0].activation_row_bytes = 5000;
  const Simulation simulation = run(straight_pipeline(2, 1, ScheduleKind::k1F1B), profile, cluster);
  EXPECT_DOUBLE_EQ(simulation.step_us, 2 * (kForward + kBackward) + 2 * (5 + 6));
  ASSERT_EQ(simulation.transfers.size(), 2U);
  EXPECT_DOUBLE_EQ(simulation.transfers[0].start_us, kForward);
  EXPECT_DOUBLE_EQ(simulation.transfers[0].end_us, kForward + 5 + 6);
  EXPECT_EQ(simulation.transfers[1].from, WorkerId{2});
}

/// One replica in front of two on other hosts, two rows of 1000 bytes.
Simulation run_fork(double first_card, double link) {
  PipelineShape shape;
  shape.layers = {1, 1};
  shape.replicas = {1, 2};
  shape.B = 2;
  Profile profile = equal_layers(2, kForward, kBackward, 2);
  profile.layers[0].activation_row_bytes = 1000;
  ClusterSpec cluster = equal_cluster(3, 1, 1e9);
  cluster.hosts[0].network.bytes_per_second = first_card;
  cluster.links.push_back({2, 0, {link, 0}});
  return run(pipeline(shape), profile, cluster);
}

TEST(Simulator, TwoFlowsThatShareALinkTakeTwiceAsLong) {
  for (const auto& [first_card, us] : std::vector<std::pair<double, double>>{{1e9, 2}, {2e9, 1}}) {
    const Simulation simulation = run_fork(first_card, 1e12);
    ASSERT_EQ(simulation.transfers.size(), 4U);
    for (const SimulatedTransfer& transfer : simulation.transfers) {
      EXPECT_EQ(transfer.bytes, 1000);
      EXPECT_DOUBLE_EQ(transfer.end_us - transfer.start_us, us);
    }
  }
}

TEST(Simulator, ASlowLinkLeavesTheRestOfTheCardToTheOtherFlow) {
  // The card has 1000 bytes per microsecond, the link to host 2 only 200.
  const Simulation simulation = run_fork(1e9, 2e8);
  for (const SimulatedTransfer& transfer : simulation.transfers) {
    const bool is_slow = transfer.from == WorkerId{3} || transfer.to == WorkerId{3};
    const double us = transfer.end_us - transfer.start_us;
    if (is_slow) {
      EXPECT_DOUBLE_EQ(us, 5);
    } else {
      // The slow row leaves 800. Its gradient starts together with the other one, too.
      EXPECT_DOUBLE_EQ(us, transfer.producer.type == ActionType::kForward ? 1.25 : 1.0);
    }
  }
}

/// One stage of `r` replicas on hosts of their own, weights of 1e6 bytes.
Simulation run_ring(int64_t r, double bytes_per_second) {
  PipelineShape shape;
  shape.layers = {1};
  shape.replicas = {r};
  shape.B = r;
  Profile profile = equal_layers(1, kForward, kBackward, 1);
  profile.layers[0].parameter_bytes = 1000000;
  return run(pipeline(shape), profile, equal_cluster(static_cast<int32_t>(r), 1, bytes_per_second));
}

TEST(Simulator, ARingTakesTheClosedForm) {
  for (int64_t r = 2; r <= 9; ++r) {
    const Simulation simulation = run_ring(r, 1e9);
    const double ring_us = 2.0 * static_cast<double>(r - 1) / static_cast<double>(r) * 1000;
    ASSERT_EQ(simulation.reductions.size(), 1U);
    EXPECT_DOUBLE_EQ(simulation.reductions[0].start_us, kForward + kBackward);
    EXPECT_NEAR(simulation.step_us, kForward + kBackward + ring_us, 1e-9);
  }
}

TEST(Simulator, BothDirectionsAtOnceTakeTheTimeOfOne) {
  // A ring of two sends W bytes each way.
  const Simulation simulation = run_ring(2, 1e9);
  EXPECT_NEAR(simulation.step_us, kForward + kBackward + 1e6 / 1e3, 1e-9);
}

TEST(Simulator, RingsThatMeetOnOneCardShareIt) {
  // Both stages have one replica on each of two hosts, then every replica has its own host.
  PipelineShape shape;
  shape.layers = {1, 1};
  shape.replicas = {2, 2};
  shape.B = 2;
  Plan plan = pipeline(shape);
  Profile profile = equal_layers(2, 0, 0, 1);
  for (LayerProfile& layer : profile.layers) layer.parameter_bytes = 1000000;
  ClusterSpec cluster = equal_cluster(4, 4, 1e9);
  cluster.hosts.push_back(cluster.hosts[0]);
  for (size_t d : {1, 3}) cluster.devices[d].host = 1;
  const Simulation shared = run(plan, profile, cluster);
  EXPECT_NEAR(shared.step_us, 2000, 1e-9);
  cluster.hosts.push_back(cluster.hosts[0]);
  cluster.hosts.push_back(cluster.hosts[0]);
  for (size_t d : {2, 3}) cluster.devices[d].host = static_cast<int32_t>(d);
  EXPECT_NEAR(run(plan, profile, cluster).step_us, 1000, 1e-9);
}

TEST(Simulator, ATiedGradientIsAddedUpOverBothEnds) {
  PipelineShape shape;
  shape.layers = {1, 1, 1};
  shape.replicas = {1, 1, 1};
  shape.tied = true;
  Profile profile = equal_layers(3, kForward, kBackward, 1);
  profile.tied_bytes = 500000;
  for (size_t l : {0, 2}) profile.layers[l].parameter_bytes = 500000;
  const Simulation simulation = run(pipeline(shape), profile, equal_cluster(3, 1, 1e9));
  ASSERT_EQ(simulation.reductions.size(), 1U);
  EXPECT_EQ(simulation.reductions[0].group, GroupId{3});
  EXPECT_NEAR(simulation.step_us, 3 * (kForward + kBackward) + 500, 1e-9);
}

TEST(Simulator, ACommitAndTheUpdatesFollowTheReductions) {
  Profile profile = equal_layers(2, kForward, kBackward, 1);
  profile.layers[1].parameter_bytes = 100;
  profile.update_us_per_byte = 0.5;
  SimulationOptions options;
  options.commit_us = 7;
  options.steps = 3;
  const Simulation simulation =
      run(straight_pipeline(2, 4, ScheduleKind::k1F1B), profile, equal_cluster(2, 1, 1e9), options);
  const double compute_us = 5 * (kForward + kBackward);
  ASSERT_EQ(simulation.step_end_us.size(), 3U);
  EXPECT_DOUBLE_EQ(simulation.step_end_us[0], compute_us + 7 + 50);
  // Stage 0 has nothing to update and is one forward ahead of stage 1.
  EXPECT_DOUBLE_EQ(simulation.step_end_us[2], 3 * (compute_us + 7 + 50) - 2 * kForward);
  EXPECT_DOUBLE_EQ(simulation.step_us, simulation.step_end_us[2] / 3);
  const SimulatedSlot& update = simulation.workers[1].slots[8];
  EXPECT_TRUE(update.is_update);
  EXPECT_DOUBLE_EQ(update.start_us, compute_us + 7);
}

TEST(Simulator, BucketsHideAllButTheLastLayersShare) {
  PipelineShape shape;
  shape.layers = {4};
  shape.replicas = {2};
  shape.B = 2;
  Profile profile = equal_layers(4, kForward, kBackward, 1);
  for (LayerProfile& layer : profile.layers) layer.parameter_bytes = 20000;
  SimulationOptions options;
  const double compute_us = 4 * (kForward + kBackward);
  const ClusterSpec cluster = equal_cluster(2, 1, 1e9);
  EXPECT_NEAR(run(pipeline(shape), profile, cluster, options).step_us, compute_us + 80, 1e-9);
  options.bucketed_reduction = true;
  EXPECT_NEAR(run(pipeline(shape), profile, cluster, options).step_us, compute_us + 20, 1e-9);
}

TEST(Simulator, OverheadCountsBetweenActionsAndBehindArrivals) {
  SimulationOptions options;
  options.action_overhead_us = 2;
  // 0F0, arrival, 1F0, 1B0, arrival, 0B0 and the update behind it.
  EXPECT_DOUBLE_EQ(run_straight(2, 1, ScheduleKind::k1F1B, options).step_us,
                   2 * (kForward + kBackward) + 4 * 2);
}

TEST(Simulator, OneForwardOneBackwardPeaksAtStateAndTheStagesBehind) {
  constexpr int64_t S = 5, M = 9;
  Profile profile = equal_layers(S, kForward, kBackward, 1);
  for (LayerProfile& layer : profile.layers) {
    layer.parameter_bytes = 1000;
    layer.stash_row_bytes = 70;
    layer.activation_row_bytes = 7;
  }
  for (ScheduleKind kind : kKinds) {
    const Simulation simulation =
        run(straight_pipeline(S, M, kind), profile, equal_cluster(S, 1, 1e9));
    for (int64_t s = 0; s < S; ++s) {
      const StageMemory memory = stage_memory(profile, {s, s + 1}, 1, false);
      const int64_t held = kind == ScheduleKind::k1F1B ? std::min(M, S - s) : M;
      const SimulatedWorker& worker = simulation.workers[static_cast<size_t>(s)];
      EXPECT_EQ(worker.peak_bytes, memory.state_bytes + held * memory.stash_bytes);
      EXPECT_EQ(worker.memory.back().bytes, memory.state_bytes);
      EXPECT_EQ(std::max_element(worker.memory.begin(), worker.memory.end(),
                                 [](const auto& a, const auto& b) { return a.bytes < b.bytes; })
                    ->bytes,
                worker.peak_bytes);
    }
  }
}

TEST(Simulator, RecomputationLengthensABackwardByItsForwardAndKeepsOutputsOnly) {
  constexpr int64_t S = 3, M = 6;
  Plan plan = straight_pipeline(S, M, ScheduleKind::k1F1B);
  plan.recompute = true;
  Profile profile = equal_layers(S, kForward, kBackward, 1);
  for (LayerProfile& layer : profile.layers) {
    layer.stash_row_bytes = 70;
    layer.activation_row_bytes = 7;
  }
  for (bool is_split : {false, true}) {
    if (is_split) split_backwards(plan);
    const Simulation simulation = run(plan, profile, equal_cluster(S, 1, 1e12));
    for (const SimulatedWorker& worker : simulation.workers) {
      EXPECT_NEAR(worker.busy_us, M * (2 * kForward + kBackward), 1e-9);
    }
    EXPECT_EQ(simulation.workers[2].peak_bytes, 70 + (is_split ? M : 1) * (7 + 7));
  }
}

TEST(Simulator, AnInputGradientTravelsBeforeTheWeightsAreDone) {
  Plan plan = straight_pipeline(2, 1, ScheduleKind::k1F1B);
  split_backwards(plan);
  // I is a third of B: F F I I W, and the W of stage 1 beside the I of stage 0.
  EXPECT_DOUBLE_EQ(
      run(plan, equal_layers(2, kForward, kBackward, 1), equal_cluster(2, 1, 1e9)).step_us,
      2 * kForward + 7 + 7 + 14);
}

TEST(Simulator, AWorkerPassesItsOutputToItselfAtOnce) {
  PipelineShape shape;
  shape.layers = {1, 1};
  shape.replicas = {2, 2};
  shape.B = 2;
  shape.M = 3;
  Profile profile = equal_layers(2, kForward, kBackward, 1);
  profile.layers[0].activation_row_bytes = 1000000;
  const Simulation simulation = run(looped_pipeline(shape, 1), profile, equal_cluster(2, 1, 1e6));
  EXPECT_DOUBLE_EQ(simulation.step_us, 3 * 2 * (kForward + kBackward));
  EXPECT_TRUE(simulation.transfers.empty());
}

TEST(Simulator, LoopedStagesOnTwoRanksShortenTheBubble) {
  PipelineShape shape;
  shape.layers = {1, 1, 1, 1};
  shape.replicas = {1, 1, 1, 1};
  shape.M = 4;
  const Simulation simulation = run(
      looped_pipeline(shape, 2), equal_layers(4, kForward, kBackward, 1), equal_cluster(2, 1, 1e9));
  // Two ranks, eight forwards and backwards each, one of both to fill and drain.
  EXPECT_DOUBLE_EQ(simulation.step_us, (2 * 4 + 1) * (kForward + kBackward));
}

TEST(Simulator, ScenariosActOnTheStepsTheyName) {
  SimulationOptions options;
  options.steps = 4;
  options.scenario = *parse_scenario("H3 sleep=1000");
  const double clean_us = 5 * (kForward + kBackward);
  const Simulation simulation = run_straight(2, 4, ScheduleKind::k1F1B, options);
  // Every step has one late device: a sleep is the beginning of its first action.
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_DOUBLE_EQ(simulation.step_end_us[step],
                     static_cast<double>(step + 1) * (clean_us + 1000));
  }
  options.scenario = *parse_scenario("H2 factor=3 devices=0,1");
  EXPECT_DOUBLE_EQ(run_straight(2, 4, ScheduleKind::k1F1B, options).step_us, 3 * clean_us);
}

TEST(Simulator, WithoutRecordsTheSumsAreTheSame) {
  SimulationOptions options;
  options.steps = 2;
  options.scenario = *parse_scenario("H1 sleep=30 probability=0.3");
  const Simulation with = run_straight(4, 8, ScheduleKind::k1F1B, options);
  options.keeps_records = false;
  const Simulation without = run_straight(4, 8, ScheduleKind::k1F1B, options);
  EXPECT_EQ(with.step_end_us, without.step_end_us);
  EXPECT_EQ(with.bubble, without.bubble);
  EXPECT_TRUE(without.transfers.empty() && without.reductions.empty());
  for (size_t w = 0; w < 4; ++w) {
    EXPECT_EQ(with.workers[w].busy_us, without.workers[w].busy_us);
    EXPECT_EQ(with.workers[w].peak_bytes, without.workers[w].peak_bytes);
    EXPECT_TRUE(without.workers[w].slots.empty() && without.workers[w].memory.empty());
    EXPECT_EQ(with.workers[w].slots.size(), 2U * (16 + 1));
  }
}

struct Question {
  Plan plan = straight_pipeline(2, 2, ScheduleKind::k1F1B);
  Profile profile = equal_layers(2, kForward, kBackward, 1);
  ClusterSpec cluster = equal_cluster(2, 1, 1e9);
  SimulationOptions options;
};

TEST(Simulator, RefusesWhatDoesNotFit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<const char*, std::function<void(Question&)>>> breaks = {
      {"it covers 2 of 3 layers",
       [](Question& q) { q.profile = equal_layers(3, kForward, kBackward, 1); }},
      {"reduction groups",
       [](Question& q) {
         q.profile.tied_bytes = 1;
         for (LayerProfile& layer : q.profile.layers) layer.parameter_bytes = 1;
       }},
      {"worker 2", [](Question& q) { q.cluster = equal_cluster(1, 1, 1e9); }},
      {"layers[1].forward_us", [](Question& q) { q.profile.layers[1].at[0].forward_us = -1; }},
      {"devices[1].speed", [](Question& q) { q.cluster.devices[1].speed = 0; }},
      {"1B0", [](Question& q) { std::swap(q.plan.actions[1][0], q.plan.actions[1][2]); }},
      {"steps = 0", [](Question& q) { q.options.steps = 0; }},
      {"commit_us", [&](Question& q) { q.options.commit_us = nan; }},
      {"action_overhead_us = -1", [](Question& q) { q.options.action_overhead_us = -1; }},
      {"devices = 2",
       [](Question& q) { q.options.scenario = *parse_scenario("H2 factor=2 devices=2"); }},
  };
  for (const auto& [message, spoil] : breaks) {
    Question question;
    spoil(question);
    const absl::Status status =
        simulate(question.plan, question.profile, question.cluster, question.options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(message));
  }
}

}  // namespace
}  // namespace skein::plans
