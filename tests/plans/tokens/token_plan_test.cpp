#include "plans/tokens/token_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "plans/plan/plan_part.hpp"
#include "plans/plan/token_lists.hpp"
#include "plans/tokens/token_keys.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobSpec job_of_three() {
  JobSpec job;
  job.model.layers = 4;
  job.model.tied_head = false;
  job.sync.policy = "tokens";
  job.training.micro_batch_size = 2;
  job.training.global_batch_size = 16;
  job.parallelism.layout = {1, 2, 1};
  job.tokens.samples = {1, 2, 8};
  job.tokens.workers = {0, 0, 2};
  return job;
}

const std::vector<WorkerId> kWorkers = {{2}, {3}, {5}, {7}};

TEST(TokenPlan, EveryWorkerHasEverySubModelButWhereTheJobSaysLess) {
  const Plan plan = make_token_plan(job_of_three(), kWorkers, 4, std::nullopt).value();
  EXPECT_EQ(plan.mode, kTokenMode);
  EXPECT_THAT(level_workers(plan)[0],
              ElementsAre(WorkerId{2}, WorkerId{3}, WorkerId{5}, WorkerId{7}));
  EXPECT_THAT(level_workers(plan)[2], ElementsAre(WorkerId{2}, WorkerId{3}));
  EXPECT_EQ(token_shape(plan).samples, 16);
  EXPECT_THAT(token_shape(plan).samples_of_token, ElementsAre(1, 2, 8));
  EXPECT_EQ(passes_of_stage(plan, 1), 8);
  EXPECT_THAT(validating_replicas(plan), ElementsAre(ReplicaId{8}));
  EXPECT_EQ(parse_plan(to_text(plan)).value(), plan);
}

TEST(TokenPlan, WhoHoldsASubModelKeepsIt) {
  const JobSpec job = job_of_three();
  const Plan before = make_token_plan(job, kWorkers, 4, std::nullopt).value();
  const Plan after = make_token_plan(job, {{1}, {3}, {5}}, 5, before).value();
  EXPECT_THAT(level_workers(after)[2], ElementsAre(WorkerId{1}, WorkerId{3}));
  EXPECT_THAT(level_workers(make_token_plan(job, {{1}, {2}, {3}}, 5, before).value())[2],
              ElementsAre(WorkerId{2}, WorkerId{3}));
}

TEST(TokenPlan, MoreSubModelsThanLayersAreRefusedByTheKeyThatWantsThem) {
  JobSpec job = job_of_three();
  job.parallelism.layout.clear();
  job.tokens.workers.clear();
  job.tokens.samples.assign(7, 1);
  const auto text = [&] {
    return std::string(make_token_plan(job, kWorkers, 4, std::nullopt).status().message());
  };
  EXPECT_THAT(text(), HasSubstr("tokens.samples has 7 entries: a model of 4 blocks has at most 6"));
  job.parallelism.pipeline_parallel_degree = 7;
  EXPECT_THAT(text(), HasSubstr("parallelism.pipeline_parallel_degree = 7: a model of 4 blocks"));
}

TEST(TokenPlan, EachWorkersPartHoldsWhateverATokenMayNeed) {
  const JobSpec job = job_of_three();
  const Plan plan = make_token_plan(job, kWorkers, 4, std::nullopt).value();
  const PlanParts parts(plan, {}, {});
  for (WorkerId worker : kWorkers) {
    const PlanPart part = parts.of(worker);
    EXPECT_EQ(validate(part, worker, job.model, ReducerKind::kSum), absl::OkStatus()) << worker;
    EXPECT_EQ(peers_in(part, worker).size(), 3) << worker;
    EXPECT_TRUE(routes_from(part, hosted_by(part, worker).front().id, +1).empty());
  }
  PlanPart lacking = parts.of({7});
  ASSERT_EQ(lacking.stages.back().stage, 2) << "it sends its outputs there";
  lacking.stages.back().replicas.pop_back();
  EXPECT_THAT(std::string(validate(lacking, {7}, job.model, ReducerKind::kSum).message()),
              HasSubstr("lacks replicas of stage 2"));
  PlanPart odd = parts.of({7});
  odd.stages.front().replicas.back().rows.count = 3;
  EXPECT_FALSE(validate(odd, {7}, job.model, ReducerKind::kSum).ok());
}

TEST(TokenPlan, BothUsesOfATiedEmbeddingAreAddedUpByWhoHasTheFirstSubModel) {
  JobSpec job = job_of_three();
  job.model.tied_head = true;
  Plan plan = make_token_plan(job, kWorkers, 4, std::nullopt).value();
  EXPECT_EQ(parse_plan(to_text(plan)).value(), plan);
  ASSERT_EQ(plan.groups.size(), 4u);
  EXPECT_EQ(plan.groups.back().scope, GroupScope::kTied);
  EXPECT_EQ(plan.groups.back().members, plan.groups.front().members);
  const PlanParts parts(plan, {}, {});
  for (WorkerId worker : kWorkers) {
    const PlanPart part = parts.of(worker);
    EXPECT_EQ(validate(part, worker, job.model, ReducerKind::kSum), absl::OkStatus()) << worker;
  }
  PlanPart lacking = parts.of({7});
  std::erase_if(lacking.groups, [](const auto& each) { return each.scope == GroupScope::kTied; });
  EXPECT_FALSE(validate(lacking, {7}, job.model, ReducerKind::kSum).ok());
  plan.stages.front().replicas.erase(plan.stages.front().replicas.begin());
  set_token_lists(plan);
  plan.groups = token_groups(plan.stages, true);
  EXPECT_THAT(std::string(validate(plan, job.model).message()),
              HasSubstr("worker 2 has the last sub-model and not the first"));
}

TEST(TokenPlan, ABrokenPlanIsRefused) {
  const JobSpec job = job_of_three();
  const Plan plan = make_token_plan(job, kWorkers, 4, std::nullopt).value();
  Plan odd = plan;
  odd.stages[1].replicas[2].rows.count = 3;
  EXPECT_THAT(std::string(validate(odd, job.model).message()), HasSubstr("has other tokens"));
  odd = plan;
  for (ReplicaPlan& each : odd.stages[1].replicas) each.rows.count = 3;
  EXPECT_THAT(std::string(validate(odd, job.model).message()), HasSubstr("tokens of 8 rows"));
  odd = plan;
  odd.actions.front().pop_back();
  EXPECT_THAT(std::string(validate(odd, job.model).message()), HasSubstr("lists of actions"));
  odd = plan;
  odd.stages[0].replicas[1].worker = odd.stages[0].replicas[0].worker;
  EXPECT_FALSE(validate(odd, job.model).ok());
}

/// What the job is refused for; "" if it is not.
std::string refusal(void (*change)(JobSpec&)) {
  JobSpec job = job_of_three();
  change(job);
  return std::string(check_tokens(job).message());
}

TEST(TokenPlan, WhatDoesNotGoTogetherIsRefusedByName) {
  EXPECT_EQ(refusal([](JobSpec&) {}), "");
  EXPECT_THAT(refusal([](JobSpec& job) {
                job.tokens.samples = {1, 2, 3};
              }),
              HasSubstr("tokens.samples = [1, 2, 3]: each must be a multiple"));
  EXPECT_THAT(refusal([](JobSpec& job) {
                job.tokens.samples = {1, 2, 32};
              }),
              HasSubstr("must divide training.global_batch_size = 16"));
  EXPECT_THAT(refusal([](JobSpec& job) {
                job.tokens.samples = {1, 2};
              }),
              HasSubstr("one entry for each of the 3 sub-models"));
  EXPECT_THAT(refusal([](JobSpec& job) { job.tokens.workers = {1}; }),
              HasSubstr("tokens.workers has 1 entries"));
  EXPECT_THAT(refusal([](JobSpec& job) { job.tokens.ahead = 0; }), HasSubstr("tokens.ahead = 0"));
  EXPECT_THAT(refusal([](JobSpec& job) { job.tokens.trial_steps = 2; }),
              HasSubstr("there is one plan to try"));
  EXPECT_THAT(refusal([](JobSpec& job) { job.tokens.trial_steps = -1; }),
              HasSubstr("tokens.trial_steps = -1"));
  EXPECT_EQ(refusal([](JobSpec& job) { job.model.tied_head = true; }), "");
  EXPECT_THAT(refusal([](JobSpec& job) {
                job.model.tied_head = true;
                job.tokens.workers = {2, 0, 0};
              }),
              HasSubstr("model.tie_word_embeddings"));
  EXPECT_THAT(refusal([](JobSpec& job) { job.sync.reducer = "topk"; }), HasSubstr("sync.reducer"));
  EXPECT_THAT(refusal([](JobSpec& job) { job.comm.backend = "nccl"; }), HasSubstr("comm.backend"));
  EXPECT_THAT(refusal([](JobSpec& job) {
                job.parallelism.layout.clear();
                job.parallelism.pipeline_parallel_degree = kAutoDegree;
              }),
              HasSubstr("tokens.samples: with parallelism.pipeline_parallel_degree = \"auto\""));
  EXPECT_EQ(refusal([](JobSpec& job) { job.tokens.reproducible = true; }), "");
  EXPECT_THAT(refusal([](JobSpec& job) {
                job.parallelism.layout.clear();
                job.parallelism.pipeline_parallel_degree = kAutoDegree;
                job.tokens.samples.clear();
                job.tokens.workers.clear();
                job.tokens.reproducible = true;
              }),
              HasSubstr("tokens.reproducible = true: with parallelism.pipeline_parallel_degree"));
  EXPECT_THAT(refusal([](JobSpec& job) { job.sync.policy = "allreduce"; }),
              HasSubstr("the keys of [tokens] are for sync.policy = \"tokens\""));
}

}  // namespace
}  // namespace skein::plans
