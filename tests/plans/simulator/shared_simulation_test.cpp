#include "plans/simulator/shared_simulation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plans/simulator/pipelines.hpp"

namespace skein::plans {
namespace {

constexpr double kPieceForwardUs = 1'000, kPieceBackwardUs = 2'000;
constexpr int32_t kSharedSteps = 40;

SharedSimulation run_shared(const std::vector<SharedJob>& jobs, const ClusterSpec& cluster,
                            int32_t steps = kSharedSteps) {
  auto found = simulate_shared(jobs, cluster, steps);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *std::move(found) : SharedSimulation{};
}

/// Two replicas of one stage, whose gradient takes `exposed_us` at 1 byte/us.
SharedJob data_parallel(double exposed_us, double scale = 1) {
  SharedJob job;
  job.plan = pipeline({.layers = {1}, .replicas = {2}, .M = 2, .B = 2});
  job.profile = equal_layers(1, kPieceForwardUs * scale, kPieceBackwardUs * scale, 2);
  job.profile.layers[0].parameter_bytes = static_cast<int64_t>(exposed_us);
  return job;
}

/// 4 stages, 4 micro-batches: a bubble of 43%.
SharedJob four_stages(double scale, int64_t priority = 0) {
  SharedJob job;
  job.plan = straight_pipeline(4, 4, ScheduleKind::k1F1B);
  job.profile = equal_layers(4, kPieceForwardUs * scale, kPieceBackwardUs * scale, 1);
  job.sharing.priority = priority;
  return job;
}

TEST(SharedSimulation, AJobAloneIsAsItIsSimulatedAlone) {
  const ClusterSpec cluster = equal_cluster(4, 1, 1e9);
  const SharedSimulation found = run_shared({four_stages(1)}, cluster);
  EXPECT_NEAR(found.jobs[0].step_us, found.jobs[0].alone_us, 1e-6);
  EXPECT_NEAR(found.speedup, 1, 1e-9);
}

TEST(SharedSimulation, EqualJobsReachTheModelOfCrossover) {
  const ClusterSpec cluster = equal_cluster(2, 1, 1e6);
  for (double ratio : {0.1, 0.2, 0.5, 1.0, 1.5}) {
    const double compute_us =
        2 * (kPieceForwardUs + kPieceBackwardUs) / 2;  // A device has half of the rows.
    const SharedJob job = data_parallel(ratio * compute_us);
    const SharedSimulation found = run_shared({job, job}, cluster);
    const double alone = found.jobs[0].alone_us;
    const double exposed = alone - compute_us;
    const double model = 2 * alone / std::max({2 * compute_us, 2 * exposed, alone});
    EXPECT_NEAR(found.speedup, model, 0.02 * model) << "X / C = " << ratio;
  }
}

/// With buckets under the last backward, turns let one job's all of them go while the other
/// computes.
TEST(SharedSimulation, TurnsGainMoreThanPiecesThatMix) {
  const ClusterSpec cluster = equal_cluster(2, 1, 1e6);
  SharedJob job;
  job.plan = pipeline({.layers = {6}, .replicas = {2}, .M = 2, .B = 2});
  job.profile = equal_layers(6, kPieceForwardUs / 6, kPieceBackwardUs / 6, 2);
  for (LayerProfile& each : job.profile.layers) each.parameter_bytes = 500;
  job.options.bucketed_reduction = true;
  const double in_turns = run_shared({job, job}, cluster).speedup;
  job.sharing.takes_turns = false;
  EXPECT_GT(in_turns, run_shared({job, job}, cluster).speedup + 0.05);
}

TEST(SharedSimulation, AThirdJobFillsWhatTwoLeave) {
  const ClusterSpec cluster = equal_cluster(2, 1, 1e6);
  SharedJob job = data_parallel(1);
  job.options.commit_us = 9'000;  // Three times what it computes; nobody has the link then.
  const double of_two = run_shared({job, job}, cluster).speedup;
  EXPECT_NEAR(of_two, 2, 0.1);
  EXPECT_GT(run_shared({job, job, job}, cluster).speedup, of_two + 0.8);
}

TEST(SharedSimulation, WeightsAreThePartsOfTheSteps) {
  const ClusterSpec cluster = equal_cluster(2, 1, 1e6);
  SharedJob often = data_parallel(10);
  often.sharing.weight = 3;
  const SharedSimulation found = run_shared({often, data_parallel(10)}, cluster);
  EXPECT_NEAR(found.jobs[1].step_us / found.jobs[0].step_us, 3, 0.2);
}

TEST(SharedSimulation, ASecondJobFillsBubblesAndHardlySlowsTheFirst) {
  const ClusterSpec cluster = equal_cluster(4, 1, 1e12);
  for (double piece : {0.1, 0.25, 0.5, 1.0}) {
    SharedJob second;
    second.plan = pipeline({.layers = {1}, .replicas = {4}, .M = 16, .B = 4});
    second.profile = equal_layers(1, 4 * kPieceForwardUs * piece, 4 * kPieceBackwardUs * piece, 4);
    second.profile.layers[0].parameter_bytes = 1;
    const SharedSimulation found = run_shared({four_stages(1, 1), second}, cluster);
    EXPECT_NEAR(found.jobs[0].alone_bubble, 3.0 / 7, 0.01);
    // Pieces as long as the first job's own fit into fewer gaps.
    EXPECT_GT(found.used_idle, piece < 1 ? 0.75 : 0.6) << piece;
    EXPECT_LT(found.jobs[0].slower(), 1.02) << piece;
  }
}

TEST(SharedSimulation, TheFirstJobMustBeThere) {
  EXPECT_FALSE(simulate_shared({}, equal_cluster(1, 1, 1e9), 3).ok());
}

}  // namespace
}  // namespace skein::plans
