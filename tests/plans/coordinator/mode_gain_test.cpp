#include "plans/coordinator/mode_gain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/base/rng.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/profile/estimate.hpp"
#include "tests/plans/modes/pipeline_world.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

/// Four like workers, with these steps behind them.
ModeQuestion question_of(std::vector<StepRatios> steps, const std::string& optimizer = "sgd") {
  ModeQuestion question{replan, replan_pipeline_replicas, {}, {}, std::move(steps)};
  JobSpec job = pipeline_job(1, 4, "auto");
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  job.optimizer.name = optimizer;
  question.request.job = job;
  for (uint32_t id = 1; id <= 4; ++id) {
    MeasuredWorker worker;
    worker.id = {id};
    worker.host = "host";
    worker.memory_bytes = int64_t{1} << 40;
    worker.profile = estimate_profile(job.model, job.training.seq_len, rows_to_measure(job),
                                      job.optimizer, 1e9, 1e9);
    question.request.workers.push_back({id});
    question.request.measured.push_back(worker);
  }
  question.measured = question.request.measured;
  return question;
}

/// One step in so many takes a worker ten times as long; each at times of its own.
std::vector<StepRatios> stalls(uint64_t one_in, double scale = 1) {
  Rng rng(1);
  std::vector<StepRatios> steps(32);
  for (StepRatios& step : steps) {
    for (uint32_t id = 1; id <= 4; ++id) step[{id}] = scale * (rng.below(one_in) == 0 ? 10 : 1);
  }
  return steps;
}

TEST(ModeGain, WhoeverStallsHoldsUpAllTogetherAndNobodyApart) {
  const ModeAnswer quiet = answer(question_of(std::vector<StepRatios>(32, {{{1}, 1}, {{2}, 1}})));
  EXPECT_GT(quiet.together_per_second, 0);
  EXPECT_LT(quiet.apart_per_second, 1.05 * quiet.together_per_second);
  const ModeAnswer disturbed = answer(question_of(stalls(10)));
  EXPECT_GT(disturbed.apart_per_second, 1.3 * disturbed.together_per_second);
  EXPECT_LT(disturbed.together_per_second, 0.5 * quiet.together_per_second)
      << "of four workers one mostly stalls";
}

TEST(ModeGain, WhatAllWorkersShareSlowsDownBothWays) {
  const ModeAnswer one = answer(question_of(stalls(10)));
  const ModeAnswer other = answer(question_of(stalls(10, 2)));
  EXPECT_NEAR(other.apart_per_second, one.apart_per_second / 2, 0.05 * one.apart_per_second);
  EXPECT_NEAR(other.together_per_second, one.together_per_second / 2,
              0.05 * one.together_per_second);
}

/// Two pipeline replicas of two stages, in force: two micro-batches take the time of three with a
/// flush. All together do as before.
TEST(ModeGain, SeveralClaimsInFlightCountForPipelineReplicas) {
  ModeQuestion question = question_of(std::vector<StepRatios>(32, {{{1}, 1}, {{2}, 1}}));
  JobSpec of_two_stages = question.request.job;
  of_two_stages.parallelism.pipeline_parallel_degree = 2;
  of_two_stages.parallelism.data_parallel_replicate_degree = 2;
  question.request.current = make_pipeline_plan(of_two_stages, {{1}, {2}, {3}, {4}}, 1).value();
  const ModeAnswer flushed = answer(question);
  question.request.job.sync.claims_in_flight = 2;
  const ModeAnswer open = answer(question);
  EXPECT_GT(open.apart_per_second, 1.3 * flushed.apart_per_second);
  EXPECT_EQ(open.together_per_second, flushed.together_per_second);
}

/// AdamW learns less from iterations apart.
TEST(ModeGain, TheOptimizerCounts) {
  const std::vector<StepRatios> quiet(32, {{{1}, 1}, {{2}, 1}});
  const ModeAnswer adamw = answer(question_of(quiet, "adamw"));
  EXPECT_LT(adamw.apart_worth, 0.9 * answer(question_of(quiet)).apart_worth);
  EXPECT_GT(adamw.apart_worth, 0.5);
}

TEST(ModeGain, AModeWithoutAPlanIsSaidSo) {
  ModeQuestion question = question_of(stalls(10));
  question.make_apart = [](const ReplanRequest&) -> absl::StatusOr<PlannedPipeline> {
    return absl::ResourceExhaustedError("no room");
  };
  const ModeAnswer without = answer(question);
  EXPECT_EQ(without.apart_per_second, 0);
  EXPECT_GT(without.together_per_second, 0);
  EXPECT_THAT(without.reason, HasSubstr("apart: no room"));
}

}  // namespace
}  // namespace skein::plans
