#include "plans/plan/pipeline_cuts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/plan/plan_part.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/schedule/schedule_csv.hpp"
#include "tests/plans/modes/pipeline_world.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

/// Two pipeline replicas of six layers, one cut 4+2, the other 1+5.
std::vector<PipelineCuts> two_unlike() { return {{{{1}, {2}}, {4}, 1}, {{{3}, {4}}, {1}, 1}}; }

TEST(PipelineCuts, StagesLieBetweenAllCuts) {
  const JobSpec job = pipeline_job(2, 2);
  const Plan plan = make_plan_of_cuts(job, two_unlike(), 3).value();
  EXPECT_EQ(plan.generation, 3u);
  EXPECT_EQ(plan.mode, kLocalMode);
  EXPECT_EQ(stages_text(plan), "1x2 | 3x2 | 2x2, cut 4+2, 1+5");
  EXPECT_EQ(pipeline_layout(plan), (PipelineLayout{2, 3}));
  const auto worker = [&](size_t stage, size_t pipeline) {
    return plan.stages[stage].replicas[pipeline].worker.value;
  };
  EXPECT_EQ(worker(0, 0), 1u);
  EXPECT_EQ(worker(1, 0), 1u);
  EXPECT_EQ(worker(2, 0), 2u);
  EXPECT_EQ(worker(0, 1), 3u);
  EXPECT_EQ(worker(1, 1), 4u);
  EXPECT_EQ(worker(2, 1), 4u);
}

TEST(PipelineCuts, StagesOfAWorkerActAsOne) {
  const Plan plan = make_plan_of_cuts(pipeline_job(2, 2), two_unlike(), 1).value();
  ASSERT_EQ(plan.actions.size(), 4u) << "a list for each worker";
  EXPECT_EQ(to_csv({plan.actions[0]}), "0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1\n");
  EXPECT_EQ(to_csv({plan.actions[1]}), "2F0,2B0,2F1,2B1\n");
  EXPECT_EQ(to_csv({plan.actions[2]}), "0F0,0F1,0B0,0B1\n");
  EXPECT_EQ(to_csv({plan.actions[3]}), "1F0,2F0,2B0,1B0,1F1,2F1,2B1,1B1\n");
}

TEST(PipelineCuts, TheSameCutsEverywhereAreTheLayoutsPlan) {
  const JobSpec job = pipeline_job(2, 2);
  const std::vector<PipelineCuts> pipelines = {{{{1}, {3}}, {3}}, {{{2}, {4}}, {3}}};
  const Plan plan = make_plan_of_cuts(job, pipelines, 1).value();
  EXPECT_EQ(plan, make_pipeline_plan(job, {{1}, {2}, {3}, {4}}, 1).value());
}

TEST(PipelineCuts, AreReadFromAPlan) {
  const Plan plan = make_plan_of_cuts(pipeline_job(2, 2), two_unlike(), 1).value();
  EXPECT_EQ(cuts_of(plan), two_unlike());
  EXPECT_EQ(parse_plan(to_text(plan)).value(), plan);
}

TEST(PipelineCuts, APipelineReplicaMayHaveClaimsOfItsOwnSize) {
  std::vector<PipelineCuts> pipelines = two_unlike();
  pipelines[0].rows = 3;  // Instead of one.
  const Plan plan = make_plan_of_cuts(pipeline_job(2, 2), pipelines, 3).value();
  EXPECT_EQ(plan.microbatch_rows, 4);
  for (const StagePlan& stage : plan.stages) {
    EXPECT_EQ(stage.replicas[0].rows, (RowRange{0, 3}));
    EXPECT_EQ(stage.replicas[1].rows, (RowRange{3, 1}));
  }
  EXPECT_EQ(stages_text(plan), "1x2 | 3x2 | 2x2, cut 4+2, 1+5, claims of 6, 2 samples");
  pipelines[1].rows = 1;
  EXPECT_EQ(cuts_of(plan), pipelines);
  EXPECT_EQ(parse_plan(to_text(plan)).value(), plan);
}

TEST(PipelineCuts, WrongOnesAreRefused) {
  const JobSpec job = pipeline_job(2, 2);
  const auto refused = [&](std::vector<PipelineCuts> pipelines) {
    return std::string(make_plan_of_cuts(job, pipelines, 1).status().message());
  };
  EXPECT_THAT(refused({}), HasSubstr("no pipeline replica"));
  EXPECT_THAT(refused({{{{1}, {2}}, {0}}}), HasSubstr("must ascend"));
  EXPECT_THAT(refused({{{{1}, {2}}, {6}}}), HasSubstr("must ascend"));
  EXPECT_THAT(refused({{{{1}, {2}, {3}}, {4, 2}}}), HasSubstr("must ascend"));
  EXPECT_THAT(refused({{{{1}, {2}}, {}}}), HasSubstr("0 cuts for 2 workers"));
  EXPECT_THAT(refused({{{{1}, {2}}, {3}}, {{{2}, {4}}, {3}}}), HasSubstr("two roles"));
  JobSpec tied = job;
  tied.model.tied_head = true;
  EXPECT_TRUE(make_plan_of_cuts(tied, two_unlike(), 1).ok());
  EXPECT_TRUE(make_plan_of_cuts(tied, {{{{1}, {2}}, {3}}, {{{3}}, {}}}, 1).ok())
      << "one has both ends of the embedding";
  tied.sync.claims_in_flight = 2;
  EXPECT_THAT(std::string(make_plan_of_cuts(tied, two_unlike(), 1).status().message()),
              HasSubstr("tied embedding"));
}

TEST(PipelineCuts, AWorkerInTwoPipelineReplicasIsRefused) {
  Plan plan = make_plan_of_cuts(pipeline_job(2, 2), two_unlike(), 1).value();
  plan.stages[1].replicas[1].worker = plan.stages[0].replicas[0].worker;
  EXPECT_FALSE(validate(plan, 6, false).ok());
}

TEST(PipelineCuts, APlanOfAllTogetherHasNone) {
  Plan plan = make_plan_of_cuts(pipeline_job(2, 2), two_unlike(), 1).value();
  plan.mode = kSynchronousMode;
  EXPECT_THAT(std::string(validate(plan, 6, false).message()), HasSubstr("is on ranks"));
}

/// Pipeline replicas of random lengths and cuts.
std::vector<PipelineCuts> random_pipelines(uint64_t seed, int64_t layers) {
  Rng rng(seed, random_stream("cuts", 1));
  std::vector<PipelineCuts> pipelines(1 + rng.below(5));
  uint32_t worker = 0;
  for (PipelineCuts& each : pipelines) {
    std::set<int64_t> cuts;
    for (uint64_t n = rng.below(4); n > 0; --n) {
      cuts.insert(1 + static_cast<int64_t>(rng.below(static_cast<uint64_t>(layers - 1))));
    }
    each.cuts.assign(cuts.begin(), cuts.end());
    each.rows = 1 + static_cast<int64_t>(rng.below(3));
    for (size_t i = 0; i <= each.cuts.size(); ++i) each.workers.push_back(WorkerId{++worker});
  }
  return pipelines;
}

TEST(PipelineCuts, PartsOfRandomPlansAreWhole) {
  const JobSpec job = pipeline_job(2, 2);
  const std::string schedules[] = {"1F1B", "GPipe"};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    JobSpec own = job;
    own.parallelism.pipeline_parallel_schedule = schedules[seed % 2];
    const std::vector<PipelineCuts> pipelines = random_pipelines(seed, layer_count(job.model));
    const Plan plan = make_plan_of_cuts(own, pipelines, 1).value();
    EXPECT_EQ(cuts_of(plan), pipelines) << seed;
    EXPECT_EQ(parse_plan(to_text(plan)).value(), plan) << seed;
    const PlanParts parts(plan, {.all_of_stage = true}, {});
    for (WorkerId worker : plan_workers(plan)) {
      const PlanPart part = parts.of(worker);
      EXPECT_EQ(validate(part, worker, job.model, ReducerKind::kSum), absl::OkStatus()) << seed;
    }
  }
}

TEST(PipelineCuts, ThoseThatLostNobodyStayAsTheyAre) {
  ReplanRequest request;
  request.job = pipeline_job(2, 2);
  request.job.parallelism.pipeline_parallel_degree = kAutoDegree;
  request.generation = 2;
  request.current = make_plan_of_cuts(request.job, two_unlike(), 1).value();
  request.workers = {{1}, {2}, {4}};
  const PlannedPipeline quick = quick_replan_pipeline_replicas(request).value();
  EXPECT_EQ(cuts_of(quick.plan), (std::vector<PipelineCuts>{{{{1}, {2}}, {4}, 1}}));
  EXPECT_EQ(quick.plan.generation, 2u);
  request.workers = {{2}, {4}};
  EXPECT_EQ(quick_replan_pipeline_replicas(request).status().code(), absl::StatusCode::kNotFound)
      << "none is whole";
}

}  // namespace
}  // namespace skein::plans
