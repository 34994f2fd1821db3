#include "plans/planner/pipelines_planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/pipeline_cuts.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "tests/plans/planner/planner_requests.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

/// Ten like layers, claims of two micro-batches of one row.
JobSpec ten_layers() {
  JobSpec job;
  job.model.layers = 8;
  job.model.tied_head = false;
  job.training.micro_batch_size = 4;
  job.training.global_batch_size = 16;
  job.parallelism.data_parallel_replicate_degree = 4;
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  job.sync.policy = "overlapped";
  job.optimizer.name = "sgd";
  return job;
}

PlanRequest request_for(const std::vector<std::vector<double>>& host_speeds) {
  return request_of(even_profile(10, {}), cluster_of(host_speeds), 16, 4);
}

void limit_memory(PlanRequest& request, double share_of_model) {
  const LayerRange all{0, static_cast<int64_t>(request.profile.layers.size())};
  const StageMemory memory = stage_memory(request.profile, all, 1, false);
  for (ClusterDevice& each : request.cluster.devices) {
    each.memory_bytes = static_cast<int64_t>(
        share_of_model * static_cast<double>(memory.state_bytes + memory.stash_bytes));
  }
}

std::vector<size_t> lengths(const Plan& plan) {
  std::vector<size_t> all;
  for (const PipelineCuts& each : cuts_of(plan)) all.push_back(each.workers.size());
  std::sort(all.begin(), all.end());
  return all;
}

TEST(PipelinesPlanner, WhereTheModelFitsEachWorkerTrainsAlone) {
  const PlannedPipeline chosen =
      plan_pipeline_replicas(ten_layers(), request_for({{1, 1, 0.5, 0.25}})).value();
  EXPECT_EQ(lengths(chosen.plan), (std::vector<size_t>{1, 1, 1, 1}));
  EXPECT_EQ(chosen.plan.mode, kLocalMode);
  EXPECT_THAT(chosen.reason, HasSubstr("4 pipeline replicas of 1+1+1+1 workers"));
}

/// Rounds are so long that nobody sees an end, where all wait for the slowest under any policy.
TEST(PipelinesPlanner, UnlikeOnesTakeClaimsBySpeedWhereSomebodyWaitsForTheSlowest) {
  JobSpec job = ten_layers();
  job.training.steps = job.sync.round_steps = 1'000'000;
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  job.training.micro_batch_size = 16;
  job.training.global_batch_size = 64;
  const PlanRequest request =
      request_of(even_profile(10, {}), cluster_of({{1, 1, 0.5, 0.25}}), 64, 16);
  for (const std::string policy : {"ps", "adpsgd_paired", "overlapped"}) {
    job.sync.policy = policy;
    const PlannedPipeline chosen = plan_pipeline_replicas(job, request).value();
    ASSERT_EQ(lengths(chosen.plan), (std::vector<size_t>{1, 1, 1, 1})) << policy;
    std::map<uint32_t, int64_t> rows;  // By worker.
    for (const PipelineCuts& each : cuts_of(chosen.plan)) {
      rows[each.workers.front().value] = each.rows;
    }
    if (policy == "overlapped") {
      EXPECT_EQ(rows, (std::map<uint32_t, int64_t>{{1, 4}, {2, 4}, {3, 4}, {4, 4}}));
    } else {
      EXPECT_EQ(rows, (std::map<uint32_t, int64_t>{{1, 6}, {2, 6}, {3, 3}, {4, 1}})) << policy;
      EXPECT_THAT(chosen.reason, HasSubstr("claims by speed of 2 times 24, 12, 4 samples"));
    }
    EXPECT_EQ(validate(chosen.plan, job.model), absl::OkStatus());
  }
}

TEST(PipelinesPlanner, WhereItDoesNotPipelineReplicasGetCutsBySpeed) {
  PlanRequest request = request_for({{1, 1, 0.25, 0.25}});
  limit_memory(request, 0.95);
  const Plan plan = plan_pipeline_replicas(ten_layers(), request).value().plan;
  EXPECT_EQ(lengths(plan), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(validate(plan, ten_layers().model), absl::OkStatus());
}

TEST(PipelinesPlanner, FastAndSlowOnesTogetherShareTheLayersBySpeed) {
  PlanRequest request = request_for({{1, 0.25}});
  limit_memory(request, 0.95);
  const Plan plan = plan_pipeline_replicas(ten_layers(), request).value().plan;
  ASSERT_EQ(lengths(plan), (std::vector<size_t>{2}));
  const PipelineCuts pipeline = cuts_of(plan).front();
  const size_t fast = pipeline.workers[0] == WorkerId{1} ? 0 : 1;
  EXPECT_EQ(layers_of(pipeline, fast, 10).size(), 8);
}

/// A single micro-batch is with one worker at a time: the slow one has as little of it as can be.
TEST(PipelinesPlanner, WhereAnIterationIsFlushedAllWorkersTimesCount) {
  PlanRequest request = request_for({{1, 0.25}});
  limit_memory(request, 0.97);
  JobSpec job = ten_layers();
  job.training.global_batch_size = job.training.micro_batch_size;
  const auto layers_of_fast = [&] {
    const Plan plan = plan_pipeline_replicas(job, request).value().plan;
    const PipelineCuts pipeline = cuts_of(plan).front();
    EXPECT_EQ(pipeline.workers.size(), 2u);
    const size_t fast = pipeline.workers[0] == WorkerId{1} ? 0 : 1;
    return layers_of(pipeline, fast, 10).size();
  };
  EXPECT_EQ(layers_of_fast(), 9);
  job.training.global_batch_size = 16 * job.training.micro_batch_size;
  EXPECT_EQ(layers_of_fast(), 8) << "of many micro-batches the slowest one's time counts";
}

TEST(PipelinesPlanner, SlowLinksMakeWorkersShareTheModel) {
  for (const std::string policy : {"overlapped", "ps"}) {
    JobSpec job = ten_layers();
    job.sync.policy = policy;
    PlanRequest request = request_for({{1}, {1}, {1}, {1}});
    for (LayerProfile& each : request.profile.layers) each.activation_row_bytes = 10;
    EXPECT_EQ(lengths(plan_pipeline_replicas(job, request).value().plan).size(), 4u) << policy;
    set_bandwidths(request.cluster, 1e9, 2e5);
    EXPECT_LT(lengths(plan_pipeline_replicas(job, request).value().plan).size(), 4u) << policy;
  }
}

TEST(PipelinesPlanner, WhatTravelsWithinAPipelineReplicaStaysOnItsHost) {
  PlanRequest request = request_for({{1, 0.5}, {1, 0.5}});
  limit_memory(request, 0.8);
  for (LayerProfile& each : request.profile.layers) each.activation_row_bytes = 100'000;
  set_bandwidths(request.cluster, 1e12, 1e9);
  const Plan plan = plan_pipeline_replicas(ten_layers(), request).value().plan;
  ASSERT_EQ(lengths(plan), (std::vector<size_t>{2, 2}));
  for (const PipelineCuts& each : cuts_of(plan)) {
    EXPECT_EQ((each.workers[0].value - 1) / 2, (each.workers[1].value - 1) / 2) << to_text(plan);
  }
}

TEST(PipelinesPlanner, WhoHasNoPlaceIsLeftOut) {
  JobSpec job = ten_layers();
  job.model.layers = 2;
  PlanRequest request = request_of(even_profile(4, {}), cluster_of({{1, 1, 1, 1, 1, 1}}), 16, 4);
  const StageMemory one = stage_memory(request.profile, {0, 1}, 1, false);
  for (ClusterDevice& each : request.cluster.devices) {
    each.memory_bytes = one.state_bytes + 4 * one.stash_bytes;  // One layer each.
  }
  const PlannedPipeline chosen = plan_pipeline_replicas(job, request).value();
  EXPECT_EQ(lengths(chosen.plan), (std::vector<size_t>{4}));
  EXPECT_THAT(chosen.reason, HasSubstr("2 have no place"));
  request.cluster.devices[1].memory_bytes = 1;
  const std::set<WorkerId> used = plan_workers(plan_pipeline_replicas(job, request).value().plan);
  EXPECT_EQ(used.size(), 4u);
  EXPECT_FALSE(used.contains(WorkerId{2})) << "it has room for nothing";
}

TEST(PipelinesPlanner, PredictsAStepOfTheJob) {
  JobSpec job = ten_layers();
  const double four = plan_pipeline_replicas(job, request_for({{1, 1, 1, 1}}))->objective_us;
  const double two = plan_pipeline_replicas(job, request_for({{1, 1}}))->objective_us;
  EXPECT_NEAR(two / four, 2, 0.1) << "half as many workers";
  const Profile profile = even_profile(10, {});
  const double claim_us = 4 * range_times(profile, {0, 10}, 1).total_us();
  EXPECT_NEAR(four / claim_us, 1, 0.1) << "each worker does one of four claims";
}

TEST(PipelinesPlanner, SaysHowLongEachWorkerIsBusy) {
  const JobSpec job = ten_layers();
  PlanRequest request = request_for({{1, 1}});
  const Plan plan = make_plan_of_cuts(job, {PipelineCuts{{{1}, {2}}, {6}}}, 1).value();
  std::map<WorkerId, double> busy_us = predict_busy_us(job, plan, request).value();
  EXPECT_NEAR(busy_us[{1}] / busy_us[{2}], 6.0 / 4, 0.02);
  request.cluster.devices[0].speed = 0.5;
  busy_us = predict_busy_us(job, plan, request).value();
  EXPECT_NEAR(busy_us[{1}] / busy_us[{2}], 12.0 / 4, 0.04);
}

/// In a step of four claims the slow one does one, and the fast one waits for it.
TEST(PipelinesPlanner, TheEndsOfShortRoundsCount) {
  JobSpec job = ten_layers();
  const PlanRequest request = request_for({{1, 0.25}});
  const Plan plan =
      make_plan_of_cuts(job, {PipelineCuts{{{1}}, {}}, PipelineCuts{{{2}}, {}}}, 1).value();
  const double rare = predict_progress(job, plan, request)->claims_per_second;
  job.validation.interval = 1;
  EXPECT_LT(predict_progress(job, plan, request)->claims_per_second, 0.9 * rare);
}

/// Each of so many workers takes ten times as long in every eighth step, not all in the same one.
std::vector<ClusterSpec> stalls(const ClusterSpec& cluster) {
  std::vector<ClusterSpec> steps(32, cluster);
  for (size_t s = 0; s < steps.size(); ++s) {
    if (s % 8 < cluster.devices.size()) steps[s].devices[s % 8].speed /= 10;
  }
  return steps;
}

TEST(PipelinesPlanner, WorkersThatStallAreExpectedToGoOnDoingSo) {
  const JobSpec job = ten_layers();
  const PlanRequest request = request_for({{1, 1, 1, 1}});
  const std::vector<ClusterSpec> steps = stalls(request.cluster);
  const PlannedPipeline quiet = plan_pipeline_replicas(job, request).value();
  const PlannedPipeline stalled = plan_pipeline_replicas(job, request, steps).value();
  EXPECT_GT(stalled.objective_us, 1.8 * quiet.objective_us);
  ASSERT_EQ(lengths(stalled.plan), (std::vector<size_t>{1, 1, 1, 1}));
  const double claims = predict_progress(job, stalled.plan, request, steps)->claims_per_second;
  EXPECT_NEAR(stalled.objective_us, 4e6 / claims, 0.02 * stalled.objective_us)
      << "a step is four claims, and each step simulated says the same";
}

TEST(PipelinesPlanner, ThoseOfAPipelineReplicaWithoutOthersCount) {
  const JobSpec job = ten_layers();
  const PlanRequest request = request_for({{1}});
  const Plan plan = make_plan_of_cuts(job, {PipelineCuts{{{1}}, {}}}, 1).value();
  const double quiet = predict_progress(job, plan, request)->claims_per_second;
  const double stalled =
      predict_progress(job, plan, request, stalls(request.cluster))->claims_per_second;
  EXPECT_NEAR(quiet / stalled, 1 + 9.0 / 8, 0.05);
}

/// Two micro-batches take the time of three stages, and of 4.2 while the second one takes 1.6 times
/// as long: that is less than one and a half times the iteration.
TEST(PipelinesPlanner, AWorkersStallsCountHoweverLittleTheyAreOfItsPipelineReplicasIteration) {
  JobSpec job = ten_layers();
  job.training.global_batch_size = 2 * job.training.micro_batch_size;
  PlanRequest request = request_for({{1, 1}});
  limit_memory(request, 0.95);
  std::vector<ClusterSpec> steps(32, request.cluster);
  for (size_t s = 0; s < steps.size(); s += 4) steps[s].devices[1].speed /= 1.6;
  const PlannedPipeline quiet = plan_pipeline_replicas(job, request).value();
  const PlannedPipeline stalled = plan_pipeline_replicas(job, request, steps).value();
  ASSERT_EQ(lengths(quiet.plan), (std::vector<size_t>{2}));
  EXPECT_NEAR(stalled.objective_us / quiet.objective_us, 1 + 0.4 / 4, 0.02);
  const auto claims = [&](const std::vector<ClusterSpec>& seen) {
    return predict_progress(job, quiet.plan, request, seen, StepsOf::kStalls)->claims_per_second;
  };
  EXPECT_NEAR(claims({}) / claims(steps), 1 + 0.4 / 4, 0.02);
}

TEST(PipelinesPlanner, LatencyCountsForEachStageThatAWorkerHas) {
  JobSpec job = ten_layers();
  job.sync.policy = "adpsgd_paired";
  PlanRequest request = request_for({{1}, {1, 1, 1, 1, 1}});
  const auto progress = [&](const PipelineCuts& second) {
    const Plan plan = make_plan_of_cuts(job, {PipelineCuts{{{1}}, {}}, second}, 1).value();
    return predict_progress(job, plan, request)->claims_per_second;
  };
  const PipelineCuts two{{{2}, {3}}, {5}};
  const PipelineCuts five{{{2}, {3}, {4}, {5}, {6}}, {2, 4, 6, 8}};
  const double at_once = progress(two);
  for (ClusterHost& host : request.cluster.hosts) host.network.latency_us = 1e5;
  EXPECT_LT(progress(two), 0.5 * at_once);
  EXPECT_LT(progress(five), 0.6 * progress(two)) << "the first worker has five stages, not two";
}

TEST(PipelinesPlanner, NobodyIsLeftOverWhereAllHaveRoom) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    PlanRequest request = random_request(seed);
    JobSpec job = ten_layers();
    job.model.layers = static_cast<int64_t>(request.profile.layers.size()) - 2;
    if (job.model.layers < 1 || request.profile.tied_bytes > 0) continue;
    const auto chosen = plan_pipeline_replicas(job, request);
    if (!chosen.ok()) {
      EXPECT_EQ(chosen.status().code(), absl::StatusCode::kResourceExhausted)
          << seed << ": " << chosen.status();
      continue;
    }
    const bool is_limited =
        std::any_of(request.cluster.devices.begin(), request.cluster.devices.end(),
                    [](const ClusterDevice& each) { return each.memory_bytes > 0; });
    if (!is_limited) {
      EXPECT_EQ(plan_workers(chosen->plan).size(), request.cluster.devices.size()) << seed;
    }
    EXPECT_EQ(validate(chosen->plan, job.model), absl::OkStatus()) << seed;
    EXPECT_EQ(check_memory(chosen->plan, request.profile, request.cluster), absl::OkStatus())
        << seed;
    const auto again = plan_pipeline_replicas(job, request);
    EXPECT_EQ(again->plan, chosen->plan) << seed;
    EXPECT_GT(predict_progress(job, chosen->plan, request)->per_second(), 0) << seed;
  }
}

TEST(PipelinesPlanner, ModelsThatFitNowhereAreRefused) {
  PlanRequest request = request_for({{1, 1}});
  limit_memory(request, 0.1);
  const absl::Status refused = plan_pipeline_replicas(ten_layers(), request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("lacks"));
}

/// Beside five layers the first worker would need a version of four blocks.
TEST(PipelinesPlanner, SeveralClaimsInFlightTakeMemoryForOlderVersions) {
  JobSpec job = ten_layers();
  PlanRequest request = request_for({{1, 1}});
  for (ClusterDevice& each : request.cluster.devices) each.memory_bytes = 2'430'000;
  const auto cuts = [&] {
    return cuts_of(plan_pipeline_replicas(job, request).value().plan).front().cuts;
  };
  EXPECT_EQ(cuts(), (std::vector<int64_t>{5}));
  job.sync.claims_in_flight = 2;
  EXPECT_EQ(cuts(), (std::vector<int64_t>{4}));
  for (ClusterDevice& each : request.cluster.devices) each.memory_bytes = 2'040'000;
  EXPECT_EQ(plan_pipeline_replicas(job, request).status().code(),
            absl::StatusCode::kResourceExhausted);
  job.sync.claims_in_flight = 1;
  EXPECT_EQ(cuts(), (std::vector<int64_t>{5}));
}

TEST(PipelinesPlanner, ATiedEmbeddingIsCutWhereTheModelHasNoRoom) {
  JobSpec job = ten_layers();
  job.model.tied_head = true;
  PlanRequest request = request_for({{1, 1}});
  EXPECT_EQ(lengths(plan_pipeline_replicas(job, request).value().plan),
            (std::vector<size_t>{1, 1}));
  limit_memory(request, 0.95);
  EXPECT_EQ(lengths(plan_pipeline_replicas(job, request).value().plan), (std::vector<size_t>{2}));
  job.sync.claims_in_flight = 2;
  EXPECT_EQ(plan_pipeline_replicas(job, request).status().code(),
            absl::StatusCode::kResourceExhausted);
}

/// Workers in the order in which they came, and one cut for all: what a layout does.
TEST(PipelinesPlanner, MakesMoreProgressThanALayoutOnUnlikeWorkers) {
  PlanRequest request = request_for({{1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25}});
  limit_memory(request, 0.95);
  JobSpec job = ten_layers();
  const PlannedPipeline chosen = plan_pipeline_replicas(job, request).value();
  JobSpec by_layout = job;
  by_layout.parallelism.pipeline_parallel_degree = 2;
  std::vector<WorkerId> workers;
  for (uint32_t n = 1; n <= 8; ++n) workers.push_back(WorkerId{n});
  const Plan layout = make_pipeline_plan(by_layout, workers, 1).value();
  const double planned = predict_progress(job, chosen.plan, request)->per_second();
  const double laid_out = predict_progress(job, layout, request)->per_second();
  EXPECT_GT(planned, 1.5 * laid_out) << chosen.reason;
}

}  // namespace
}  // namespace skein::plans
