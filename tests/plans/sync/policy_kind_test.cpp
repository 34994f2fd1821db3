#include "plans/sync/policy_kind.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "plans/plan/layout_plan.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

JobSpec job_of(const std::string& policy) {
  JobSpec job;
  job.sync.policy = policy;
  job.model.tied_head = false;
  job.training.micro_batch_size = 8;
  job.parallelism.pipeline_parallel_degree = 2;
  job.parallelism.data_parallel_replicate_degree = 4;
  return job;
}

const std::vector<std::string> kNames = {"sdpipe", "partial_reduce", "prague",
                                         "adpsgd", "adpsgd_paired",  "overlapped"};

TEST(PolicyKind, EveryNameOfAPipelinePolicyMakesOne) {
  EXPECT_EQ(parse_policy_kind("allreduce").value(), PolicyKind::kAllreduce);
  EXPECT_FALSE(may_run_pipelines(job_of("allreduce")));
  EXPECT_TRUE(may_run_pipelines(job_of("auto")));
  EXPECT_FALSE(begins_in_pipelines(job_of("auto")));
  EXPECT_EQ(parse_policy_kind("tokens").value(), PolicyKind::kTokens);
  EXPECT_FALSE(may_run_pipelines(job_of("tokens"))) << "all do every step together";
  EXPECT_TRUE(trains_by_tokens(job_of("tokens")));
  int kind = static_cast<int>(PolicyKind::kTokens);
  for (const std::string& name : kNames) {
    EXPECT_EQ(static_cast<int>(parse_policy_kind(name).value()), ++kind) << name;
    EXPECT_TRUE(begins_in_pipelines(job_of(name)));
    EXPECT_EQ(check_pipelines(job_of(name)), absl::OkStatus());
    EXPECT_NE(make_policy(job_of(name), {4, 2}), nullptr);
  }
}

TEST(PolicyKind, ATypoIsAnsweredWithTheNearestName) {
  for (const auto& [typo, meant] : {std::pair("sdpip", "sdpipe"),
                                    {"allreduced", "allreduce"},
                                    {"adpsgd_pair", "adpsgd_paired"},
                                    {"partial-reduce", "partial_reduce"}}) {
    const absl::Status refused = parse_policy_kind(typo).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(meant)) << typo;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("must be one of"));
  }
  EXPECT_FALSE(parse_policy_kind("").ok());
}

TEST(PolicyKind, SeveralClaimsInFlightNeedWhatCanBeLeftOpen) {
  JobSpec fits = job_of("sdpipe");
  fits.sync.claims_in_flight = 3;
  EXPECT_EQ(check_pipelines(fits), absl::OkStatus());
  const auto refused = [&](const std::string& why, auto spoil) {
    JobSpec job = fits;
    spoil(job);
    EXPECT_THAT(std::string(check_pipelines(job).message()), HasSubstr(why));
  };
  refused("choose a policy of pipeline replicas",
          [](JobSpec& job) { job.sync.policy = "allreduce"; });
  refused("choose \"overlapped\"", [](JobSpec& job) { job.sync.policy = "auto"; });
  refused("as 1F1B", [](JobSpec& job) { job.parallelism.pipeline_parallel_schedule = "GPipe"; });
  refused("as 1F1B", [](JobSpec& job) { job.parallelism.virtual_stages = 2; });
  refused("tie_word_embeddings = false", [](JobSpec& job) { job.model.tied_head = true; });
  refused("make rounds several times as long", [](JobSpec& job) { job.sync.round_steps = 3; });
  refused("make rounds several times as long", [](JobSpec& job) { job.validation.interval = 3; });
  refused("make rounds several times as long", [](JobSpec& job) { job.checkpoint.interval = 3; });
}

/// Where the planner chooses, a pipeline replica's iteration is simulated as it would be.
TEST(PolicyKind, AutoMayHaveSeveralClaimsInFlightWhereNoFlushIsMeasured) {
  JobSpec job = job_of("auto");
  job.sync.claims_in_flight = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(check_pipelines(job)));
  for (const int64_t degree : {kAutoDegree, int64_t{1}}) {
    job.parallelism.pipeline_parallel_degree = degree;
    EXPECT_EQ(check_pipelines(job), absl::OkStatus());
  }
  job.sync.claims_in_flight = job.sync.round_steps;
  EXPECT_TRUE(absl::IsInvalidArgument(check_pipelines(job)));
}

TEST(PolicyKind, RoundsEndWhereAValidationOrACheckpointIsDue) {
  JobSpec job = job_of("sdpipe");
  job.sync.round_steps = 16;
  job.validation = {.interval = 100, .batches = 8};
  job.checkpoint.interval = 500;
  EXPECT_EQ(round_steps_max(job), 16);
  job.validation.interval = 2;
  EXPECT_EQ(round_steps_max(job), 2);
  job.validation.batches = 0;
  job.checkpoint.interval = 5;
  EXPECT_EQ(round_steps_max(job), 5);
  job.checkpoint.interval = 0;
  EXPECT_EQ(round_steps_max(job), 16) << "only the last step writes one";
  job.checkpoint = {.enable = false, .interval = 5};
  EXPECT_EQ(round_steps_max(job), 16);
}

TEST(PolicyKind, RoundsAreShorterInTheMeanThanTheLongestOnes) {
  JobSpec job = job_of("sdpipe");
  job.training.steps = 1000;
  job.sync.round_steps = 50;
  job.validation = {.interval = 60, .batches = 8};
  job.checkpoint = {.enable = false, .interval = 7};
  EXPECT_NEAR(round_steps_mean(job), 30, 1e-9) << "ends at 50, 60, 100, 120, 150, ..., 300";
  job.validation.interval = 51;
  EXPECT_NEAR(round_steps_mean(job), 25.5, 1e-9) << "50, 1, 49, 2, ...";
  job.validation.interval = 100;
  EXPECT_NEAR(round_steps_mean(job), 50, 1e-9);
  job.checkpoint = {.enable = true, .interval = 75};
  EXPECT_NEAR(round_steps_mean(job), 300.0 / 8, 1e-9) << "50, 75, 100, 150, 200, 225, 250, 300";
}

TEST(PolicyKind, NoRoundIsLongerThanTheJob) {
  JobSpec job = job_of("sdpipe");
  job.training.steps = 1000;
  job.sync.round_steps = std::numeric_limits<int64_t>::max();
  job.validation = {.interval = std::numeric_limits<int64_t>::max() - 1, .batches = 8};
  job.checkpoint.interval = std::numeric_limits<int64_t>::max() - 3;
  EXPECT_EQ(round_steps_mean(job), 1000);
  job.validation.interval = 10;
  EXPECT_NEAR(round_steps_mean(job), 10, 1e-9);
}

TEST(PolicyKind, StepsOfAllHaveNoRounds) {
  JobSpec job = job_of("overlapped");
  job.sync.round_reducer = "adasum";
  EXPECT_EQ(check_pipelines(job), absl::OkStatus());
  job.sync.policy = "allreduce";
  EXPECT_THAT(std::string(check_pipelines(job).message()), HasSubstr("sync.round_reducer"));
}

TEST(PolicyKind, ATiedEmbeddingMayLieOnTwoStages) {
  for (const std::string& name : kNames) {
    JobSpec job = job_of(name);
    job.model.tied_head = true;
    EXPECT_EQ(check_pipelines(job), absl::OkStatus());
  }
}

TEST(PolicyKind, WhatPipelinesCannotDoIsRefusedWithAWayOut) {
  struct Case {
    std::function<void(JobSpec&)> spoil;
    std::string word;
  };
  const std::vector<Case> cases = {
      {[](JobSpec& job) {
         job.parallelism.replicas = {4, 4};
       },
       "data_parallel_replicate_degree"},
      {[](JobSpec& job) { job.parallelism.plan = "plan.txt"; }, "parallelism.plan"},
      {[](JobSpec& job) { job.training.micro_batch_size = 3; }, "at least parall"},
      {[](JobSpec& job) { job.sync.reducer = "mean"; }, "leave sync.reducer out"},
  };
  for (const Case& each : cases) {
    for (const std::string& name : kNames) {
      JobSpec job = job_of(name);
      each.spoil(job);
      const absl::Status refused = check_pipelines(job);
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << each.word;
      EXPECT_THAT(std::string(refused.message()), HasSubstr(each.word));
    }
    JobSpec synchronous = job_of("allreduce");
    each.spoil(synchronous);
    EXPECT_EQ(check_pipelines(synchronous), absl::OkStatus());
  }
}

TEST(PolicyKind, ADecayIsForThosePoliciesThatWeighByDelay) {
  for (const char* policy : {"sdpipe", "partial_reduce", "prague", "overlapped", "auto", "ps"}) {
    JobSpec job = job_of(policy);
    job.sync.staleness_decay = 0.5;
    const bool is_used = job.sync.policy == "sdpipe" || job.sync.policy == "partial_reduce";
    EXPECT_EQ(check_pipelines(job).ok(), is_used) << policy;
  }
}

TEST(PolicyKind, ThePlannerMayShareOutTheWorkersOfAll) {
  std::vector<std::string> names = kNames;
  names.push_back("auto");
  for (const std::string& name : names) {
    JobSpec job = job_of(name);
    job.parallelism.pipeline_parallel_degree = kAutoDegree;
    EXPECT_EQ(check_pipelines(job), absl::OkStatus()) << name;
  }
}

TEST(PolicyKind, ATiedEmbeddingWithSeveralClaimsInFlightNeedsOneStage) {
  JobSpec job = job_of("sdpipe");
  job.model.tied_head = true;
  job.sync.claims_in_flight = 2;
  job.parallelism.pipeline_parallel_degree = 1;
  EXPECT_EQ(check_pipelines(job), absl::OkStatus());
  job.parallelism.pipeline_parallel_degree = 2;
  EXPECT_FALSE(check_pipelines(job).ok());
}

TEST(PolicyKind, PoliciesTakeTheirOptionsFromTheJob) {
  for (uint32_t size = 2; size <= 4; ++size) {
    JobSpec job = job_of("partial_reduce");
    job.sync.group_size = size;
    const auto policy = make_policy(job, {4, 1});
    for (uint32_t ready = 1; ready < size; ++ready) {
      EXPECT_TRUE(policy->on_ready({{ready - 1}, 0}, ready).starts.empty()) << size;
    }
    const GroupDecisions decisions = policy->on_ready({{size - 1}, 0}, size);
    ASSERT_EQ(decisions.starts.size(), 1u) << size;
    EXPECT_EQ(decisions.starts[0].members.size(), size);
  }
}

}  // namespace
}  // namespace skein::plans
