#include "plans/plan/layout_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

std::vector<WorkerId> workers(uint32_t count) {
  std::vector<WorkerId> ids;
  for (uint32_t n = 1; n <= count; ++n) ids.push_back({n});
  return ids;
}

JobSpec job_with(std::vector<int64_t> layout, std::vector<int64_t> replicas) {
  JobSpec job;
  job.model.layers = 8;
  job.training.micro_batch_size = 8;
  job.training.global_batch_size = 32;
  job.parallelism.layout = std::move(layout);
  job.parallelism.replicas = std::move(replicas);
  return job;
}

std::string error_of(const JobSpec& job, uint32_t count) {
  return std::string(make_layout_plan(job, workers(count), 1).status().message());
}

TEST(MakePlan, LayoutCountsBlocksAndPlacesBothEnds) {
  const auto plan = make_layout_plan(job_with({4, 2, 2}, {}), workers(3), 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->stages[0].layers, (LayerRange{0, 5}));
  EXPECT_EQ(plan->stages[1].layers, (LayerRange{5, 7}));
  EXPECT_EQ(plan->stages[2].layers, (LayerRange{7, 10}));
}

TEST(MakePlan, EveryPlanIsValidAndRoundTripsAsText) {
  for (const std::vector<int64_t>& replicas :
       std::vector<std::vector<int64_t>>{{1}, {3}, {1, 3}, {4, 1, 2}, {2, 2}, {1, 1, 1, 1}}) {
    for (bool tied : {true, false}) {
      JobSpec job = job_with({}, replicas);
      job.model.tied_head = tied;
      const auto plan = make_layout_plan(job, workers(8), 7);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_TRUE(validate(*plan, job.model).ok()) << validate(*plan, job.model);
      const auto parsed = parse_plan(to_text(*plan));
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(*parsed, *plan);
    }
  }
}

TEST(MakePlan, RefusesATiedEmbeddingWithBothEndsOnOneWorker) {
  JobSpec job = job_with({}, {});
  job.parallelism.pipeline_parallel_degree = 1;
  job.parallelism.virtual_stages = 2;
  job.parallelism.pipeline_parallel_schedule = "Greedy";
  EXPECT_THAT(error_of(job, 1), HasSubstr("tie_word_embeddings = false"));
  job.model.tied_head = false;
  EXPECT_EQ(error_of(job, 1), "");
}

TEST(MakePlan, ATiedEmbeddingJoinsTheFirstAndTheLastStage) {
  const auto plan = make_layout_plan(job_with({}, {2, 1, 2}), workers(5), 1);
  const ReductionGroup& tied = plan->groups.back();
  EXPECT_EQ(tied.scope, GroupScope::kTied);
  EXPECT_EQ(tied.members, (std::vector<ReplicaId>{{0}, {1}, {3}, {4}}));
}

TEST(MakePlan, SaysWhatDoesNotFit) {
  EXPECT_THAT(error_of(job_with({4, 2, 3}, {}), 3), HasSubstr("must add up"));
  EXPECT_THAT(error_of(job_with({4, 0, 4}, {}), 3), HasSubstr("stage 1 is empty"));
  EXPECT_THAT(error_of(job_with({4, 4}, {1, 1, 1}), 3), HasSubstr("one entry per stage"));
  EXPECT_THAT(error_of(job_with({}, {1, 3}), 3), HasSubstr("needs 4 workers"));
  EXPECT_THAT(error_of(job_with({}, {9}), 9), HasSubstr("at least one row"));
  JobSpec deep = job_with({}, {});
  deep.parallelism.pipeline_parallel_degree = 11;
  EXPECT_THAT(error_of(deep, 11), HasSubstr("at most 10 stages"));
}

TEST(Validate, FindsWhatAPeerMightSend) {
  const JobSpec job = job_with({}, {1, 2});
  const Plan good = *make_layout_plan(job, workers(3), 1);
  auto broken = [&](auto change) {
    Plan plan = good;
    change(plan);
    return !validate(plan, job.model).ok();
  };
  EXPECT_TRUE(broken([](Plan& p) { p.stages.clear(); }));
  EXPECT_TRUE(broken([](Plan& p) { p.stages[0].layers.end += 1; }));
  EXPECT_TRUE(broken([](Plan& p) { p.stages[1].layers.end -= 1; }));
  EXPECT_TRUE(broken([](Plan& p) { p.stages[1].replicas[0].rows.count += 1; }));
  EXPECT_TRUE(broken([](Plan& p) { p.stages[1].replicas[1].id.value = 9; }));
  EXPECT_TRUE(broken([](Plan& p) { p.stages[0].replicas[0].worker.value = 0; }));
  EXPECT_TRUE(broken([](Plan& p) { p.groups.pop_back(); }));
  EXPECT_TRUE(broken([](Plan& p) { p.microbatch_count = 0; }));
}

TEST(ParsePlan, RefusesEveryTruncation) {
  const std::string text = to_text(*make_layout_plan(job_with({}, {1, 2}), workers(3), 1));
  const JobSpec job = job_with({}, {1, 2});
  for (size_t length = 0; length + 1 < text.size(); ++length) {
    const auto parsed = parse_plan(text.substr(0, length));
    EXPECT_FALSE(parsed.ok() && validate(*parsed, job.model).ok()) << text.substr(0, length);
  }
}

TEST(ParsePlan, ReadsTheModeAsItWasWrittenBeforeModesHadNames) {
  const std::string text = to_text(*make_layout_plan(job_with({}, {1, 2}), workers(3), 1));
  const size_t line_end = text.find('\n', text.find(" recompute="));
  for (const int is_local : {0, 1}) {
    std::string old_text = text;
    old_text.insert(line_end, " columns=" + std::to_string(is_local));  // Old word.
    const auto parsed = parse_plan(old_text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->mode, is_local == 1 ? kLocalMode : kSynchronousMode);
  }
}

TEST(Routes, TileEveryReplicasRowsForAnyReplication) {
  for (int64_t r1 = 1; r1 <= 5; ++r1) {
    for (int64_t r2 = 1; r2 <= 5; ++r2) {
      const auto plan = make_layout_plan(job_with({}, {r1, r2}), workers(10), 1);
      ASSERT_TRUE(plan.ok());
      for (int64_t stage : {0, 1}) {
        std::vector<int> covered(8, 0);
        for (const ReplicaPlan& replica : plan->stages[static_cast<size_t>(stage)].replicas) {
          for (const Route& route : routes_from(*plan, replica.id, stage == 0 ? 1 : -1)) {
            EXPECT_GE(route.rows.begin, replica.rows.begin);
            EXPECT_LE(route.rows.end(), replica.rows.end());
            for (int64_t row = route.rows.begin; row < route.rows.end(); ++row) ++covered[row];
          }
        }
        EXPECT_EQ(covered, std::vector<int>(8, 1)) << r1 << " to " << r2;
      }
    }
  }
}

}  // namespace
}  // namespace skein::plans
