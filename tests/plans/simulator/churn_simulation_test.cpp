#include "plans/simulator/churn_simulation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "../elastic/small_plans.hpp"
#include "../planner/planner_requests.hpp"
#include "plans/base/rng.hpp"
#include "tests/support/cases.hpp"

namespace skein::plans {
namespace {

using ChangeKind = MemberChange::Kind;
using ::testing::HasSubstr;

constexpr double kBatch = 16;

MemberChange joins(double at_s, uint32_t worker, int32_t device) {
  return {at_s, ChangeKind::kJoins, {worker}, device};
}
MemberChange notice(double at_s, uint32_t worker) {
  return {at_s, ChangeKind::kNotice, {worker}, static_cast<int32_t>(worker) - 1};
}
MemberChange goes(double at_s, uint32_t worker) {
  return {at_s, ChangeKind::kGoes, {worker}, static_cast<int32_t>(worker) - 1};
}

/// `first` of `devices` equal devices are there at the start. A device takes 0.3 s for a step.
ChurnRequest request_of(int64_t devices, int64_t first, std::vector<MemberChange> changes) {
  ChurnRequest request;
  request.job = small_job(4, false);
  request.job.parallelism.pipeline_parallel_degree = kAutoDegree;
  request.job.checkpoint.interval = 10;
  LayerByHand layer;
  layer.forward_us = 1000;
  layer.backward_us = 2000;
  request.profile = even_profile(6, layer);
  request.cluster =
      cluster_of(std::vector<std::vector<double>>(static_cast<size_t>(devices), {1.0}));
  for (int32_t device = 0; device < first; ++device) {
    request.churn.begin.push_back(joins(0, static_cast<uint32_t>(device) + 1, device));
  }
  request.churn.changes = std::move(changes);
  request.churn.length_s = 100;
  return request;
}

ChurnSimulation simulated(const ChurnRequest& request) {
  auto simulation = simulate_churn(request);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.value_or(ChurnSimulation{});
}

const ChurnOutcome& skein(const ChurnSimulation& simulation) { return simulation.outcomes.at(0); }
const ChurnOutcome& restart(const ChurnSimulation& simulation) { return simulation.outcomes.at(1); }
const ChurnOutcome& templates(const ChurnSimulation& simulation) {
  return simulation.outcomes.at(2);
}

TEST(ChurnSimulation, LosesNothingWhileMembersStay) {
  ChurnRequest request = request_of(4, 4, {});
  request.template_stages = {1, 2};
  const ChurnSimulation simulation = simulated(request);
  EXPECT_EQ(simulation.members_mean, 4);
  EXPECT_NEAR(simulation.ideal_samples, 100 * 4 / 0.018, 1);
  for (const ChurnOutcome& outcome : simulation.outcomes) {
    EXPECT_EQ(outcome.plans, 0) << outcome.way;
    EXPECT_EQ(outcome.steps_redone, 0) << outcome.way;
    EXPECT_EQ(outcome.stopped_s, 0) << outcome.way;
  }
  EXPECT_GT(simulation.free_samples, 0.95 * simulation.ideal_samples);
  EXPECT_NEAR(skein(simulation).samples, simulation.free_samples, kBatch);
  EXPECT_EQ(restart(simulation).samples, skein(simulation).samples);
}

TEST(ChurnSimulation, RedoesTheStepInProgressWhenAReplicaOfEachStageLives) {
  ChurnRequest request = request_of(2, 2, {goes(50.001, 2)});
  const ChurnSimulation simulation = simulated(request);
  EXPECT_EQ(skein(simulation).steps_redone, 1);
  // The device ends the action that it has begun: 2 ms for each of its rows and layers at most.
  EXPECT_GE(skein(simulation).stopped_s, request.costs.change_s);
  EXPECT_LE(skein(simulation).stopped_s, request.costs.change_s + 6 * 8 * 0.002);
  EXPECT_NEAR(simulation.ideal_samples, (50.001 * 2 + 49.999) / 0.018, 1);
  EXPECT_NEAR(skein(simulation).samples, simulation.free_samples, 3 * kBatch);
}

TEST(ChurnSimulation, RedoesNothingForWhoHasHeardThatItWillGo) {
  ChurnRequest request = request_of(2, 2, {notice(48, 2), goes(50, 2)});
  const ChurnSimulation simulation = simulated(request);
  EXPECT_EQ(skein(simulation).steps_redone, 0);
  EXPECT_EQ(skein(simulation).plans, 1);
  EXPECT_EQ(restart(simulation).plans, 1);
  EXPECT_EQ(restart(simulation).steps_redone, 1);  // The one in progress: it saves and stops.
  // With less time than the planner takes, it is a loss like any other.
  request.churn.changes = {notice(49.99, 2), goes(50, 2)};
  EXPECT_EQ(skein(simulated(request)).steps_redone, 1);
}

TEST(ChurnSimulation, GoesBackToASnapshotWhereAStageIsLost) {
  ChurnRequest request = request_of(3, 3, {goes(50, 2)});
  request.job.parallelism.pipeline_parallel_degree = 0;  // A stage for each.
  request.job.elastic.snapshot_interval = 4;
  const int64_t redone = skein(simulated(request)).steps_redone;
  EXPECT_GE(redone, 1);
  EXPECT_LE(redone, 5);
  request.job.elastic.snapshot_interval = 0;  // The checkpoint, then.
  EXPECT_GT(skein(simulated(request)).steps_redone, 0);
  EXPECT_LE(skein(simulated(request)).steps_redone, 11);
  request.job.checkpoint.enable = false;
  EXPECT_GT(skein(simulated(request)).steps_redone, 100);
}

TEST(ChurnSimulation, TakesTimeToMoveState) {
  ChurnRequest request = request_of(2, 1, {joins(10, 2, 1)});
  const double before_s = skein(simulated(request)).stopped_s;
  EXPECT_EQ(skein(simulated(request)).plans, 1);
  // 6 layers of 3 * 100 kB each at 1 MB/s.
  set_bandwidths(request.cluster, 1e6, 1e6);
  request.job.parallelism.data_parallel_replicate_degree = 2;
  request.job.parallelism.pipeline_parallel_degree = 1;
  EXPECT_NEAR(skein(simulated(request)).stopped_s - before_s, 1.8, 0.01);
}

TEST(ChurnSimulation, TakesNewcomersAtACommitWhenTheyHaveMeasured) {
  ChurnRequest request = request_of(2, 1, {joins(10, 2, 1)});
  const ChurnSimulation simulation = simulated(request);
  EXPECT_EQ(skein(simulation).steps_redone, 0);
  EXPECT_EQ(skein(simulation).plans, 1);
  EXPECT_EQ(restart(simulation).plans, 1);
  request.costs.join_s = 95;  // The run ends before.
  EXPECT_EQ(skein(simulated(request)).plans, 0);
  EXPECT_LT(skein(simulated(request)).samples, skein(simulation).samples);
}

TEST(ChurnSimulation, LetsOneNewcomerOfAHostMeasureAtATime) {
  ChurnRequest request = request_of(3, 1, {joins(10, 2, 1), joins(10, 3, 2)});
  request.costs.measure_s = 40;
  const double apart = skein(simulated(request)).samples;
  for (ClusterDevice& device : request.cluster.devices) device.host = 0;
  request.cluster.hosts.resize(1);
  EXPECT_LT(skein(simulated(request)).samples, apart - 30 / 0.018);
  request.job.parallelism.pipeline_parallel_degree = 1;  // Nobody measures for a layout.
  request.job.parallelism.data_parallel_replicate_degree = 3;
  const double laid_out = skein(simulated(request)).samples;
  request.costs.measure_s = 0;
  EXPECT_EQ(skein(simulated(request)).samples, laid_out);
}

TEST(ChurnSimulation, PaysForEachRestartWithTimeAndSteps) {
  ChurnRequest request = request_of(2, 2, {goes(50.001, 2)});
  request.costs.checkpoint_steps = 1'000'000;
  const ChurnSimulation simulation = simulated(request);
  EXPECT_NEAR(restart(simulation).stopped_s, request.costs.restart_s, 1e-9);
  EXPECT_GT(restart(simulation).steps_redone, 300);  // All of them.
  EXPECT_LT(restart(simulation).samples, simulation.free_samples / 2);
  // Who goes during a restart begins it anew, who comes is part of it.
  request = request_of(3, 3, {goes(50, 2), goes(51, 3), joins(52, 4, 2)});
  EXPECT_NEAR(restart(simulated(request)).stopped_s, 1 + request.costs.restart_s, 1e-9);
  EXPECT_EQ(restart(simulated(request)).plans, 1);
}

TEST(ChurnSimulation, LeavesWorkersBeyondWholePipelinesIdle) {
  ChurnRequest request = request_of(4, 4, {goes(50, 4)});
  request.template_stages = {2};
  const ChurnSimulation simulation = simulated(request);
  EXPECT_LT(templates(simulation).samples, 0.9 * skein(simulation).samples);
  EXPECT_GE(templates(simulation).steps_redone, 1);
  // A spare that goes is missed by nobody.
  request = request_of(5, 5, {goes(50, 5)});
  request.template_stages = {4};
  EXPECT_EQ(templates(simulated(request)).steps_redone, 0);
  EXPECT_EQ(templates(simulated(request)).stopped_s, 0);
  request = request_of(3, 3, {});
  request.template_stages = {4};
  EXPECT_EQ(templates(simulated(request)).samples, 0);
  EXPECT_EQ(templates(simulated(request)).stopped_s, 100);
}

TEST(ChurnSimulation, WaitsWhileNobodyIsThereAndGoesOnFromTheCheckpoint) {
  ChurnRequest request = request_of(2, 1, {goes(50.001, 1), joins(70, 2, 1)});
  const ChurnSimulation simulation = simulated(request);
  EXPECT_GE(skein(simulation).stopped_s, 19.999);
  EXPECT_LE(skein(simulation).stopped_s, 19.999 + 2);
  EXPECT_LE(skein(simulation).steps_redone, 11);
  EXPECT_GT(skein(simulation).samples, 0.9 * simulation.free_samples);
  EXPECT_NEAR(simulation.members_mean, 0.8, 1e-3);
}

TEST(ChurnSimulation, NeverExceedsTheIdealAndIsTheSameTwice) {
  for (uint64_t seed = 1; seed <= tests::cases(30); ++seed) {
    Rng rng(seed);
    ChurnRequest request = request_of(4, 2, {});
    request.template_stages = {2, 3};
    std::vector<uint32_t> worker_on = {1, 2, 0, 0};
    uint32_t newest = 2;
    for (double at_s = 1; at_s < 99; at_s += 0.01 + 12 * rng.uniform()) {
      const auto device = static_cast<int32_t>(rng.below(4));
      uint32_t& worker = worker_on[static_cast<size_t>(device)];
      if (worker == 0) {
        request.churn.changes.push_back(joins(at_s, worker = ++newest, device));
        continue;
      }
      if (rng.below(2) == 0) {
        request.churn.changes.push_back({at_s, ChangeKind::kNotice, {worker}, device});
        at_s += rng.uniform();
      }
      request.churn.changes.push_back({at_s, ChangeKind::kGoes, {worker}, device});
      worker = 0;
    }
    const ChurnSimulation simulation = simulated(request);
    const ChurnSimulation again = simulated(request);
    EXPECT_LE(simulation.free_samples, simulation.ideal_samples);
    for (size_t way = 0; way < simulation.outcomes.size(); ++way) {
      const ChurnOutcome& outcome = simulation.outcomes[way];
      EXPECT_LE(outcome.samples, simulation.ideal_samples) << outcome.way << ", seed " << seed;
      EXPECT_GE(outcome.stopped_s, 0);
      EXPECT_LE(outcome.stopped_s, request.churn.length_s);
      EXPECT_EQ(outcome.samples, again.outcomes[way].samples);
      EXPECT_EQ(outcome.plans, again.outcomes[way].plans);
    }
  }
}

TEST(ChurnSimulation, RefusesWhatItCannotSimulate) {
  auto message = [](const ChurnRequest& request) {
    return std::string(simulate_churn(request).status().message());
  };
  ChurnRequest request = request_of(2, 2, {});
  request.job.sync.policy = "sdpipe";
  request.job.parallelism.pipeline_parallel_degree = 1;
  request.job.parallelism.data_parallel_replicate_degree = 2;
  EXPECT_THAT(message(request), HasSubstr("sync.policy is sdpipe"));
  request = request_of(2, 2, {});
  request.template_stages = {0};
  EXPECT_THAT(message(request), HasSubstr("a pipeline of 0 stages: expected 1 to 6"));
  request = request_of(2, 2, {joins(3, 3, 2)});
  EXPECT_THAT(message(request), HasSubstr("the cluster has no device 2"));
  request = request_of(2, 2, {});
  request.profile = even_profile(5, {});
  EXPECT_THAT(message(request), HasSubstr("the profile has 5 layers and the job's model 6"));
  request = request_of(2, 2, {});
  request.costs.restart_s = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message(request), HasSubstr("0 s or more"));
  request = request_of(2, 2, {});
  request.costs.checkpoint_steps = -1;
  EXPECT_THAT(message(request), HasSubstr("between checkpoints"));
}

}  // namespace
}  // namespace skein::plans
