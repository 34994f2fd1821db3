#include "plans/plan/pipeline_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plans/elastic/replan.hpp"
#include "tests/plans/modes/pipeline_world.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

std::vector<WorkerId> pipeline_workers(uint32_t count) {
  std::vector<WorkerId> all;
  for (uint32_t id = 1; id <= count; ++id) all.push_back(WorkerId{2 * id});
  return all;
}

TEST(PipelinePlan, HasAsManyPipelinesAsThereAreWorkersFor) {
  const JobSpec job = pipeline_job(2, 3);
  for (uint32_t count = 1; count <= 12; ++count) {
    const auto plan = make_pipeline_plan(job, pipeline_workers(count), 7);
    ASSERT_TRUE(plan.ok()) << count << ": " << plan.status();
    EXPECT_EQ(plan->generation, 7u);
    const uint32_t stages = count < 2 ? 1 : 2;
    EXPECT_EQ(pipeline_layout(*plan), (PipelineLayout{count / stages, stages})) << count;
    EXPECT_EQ(validate(*plan, job.model), absl::OkStatus()) << count;
  }
}

TEST(PipelinePlan, APipelineTrainsOnAsManySamplesHoweverManyThereAre) {
  for (int64_t pipelines = 1; pipelines <= 4; ++pipelines) {
    JobSpec job = pipeline_job(2, pipelines);
    job.training.micro_batch_size = 3 * pipelines;
    job.training.global_batch_size = 15 * pipelines;
    EXPECT_EQ(pipeline_samples(job), 15u);
    for (uint32_t count = 1; count <= 9; ++count) {
      const Plan plan = make_pipeline_plan(job, pipeline_workers(count), 1).value();
      EXPECT_EQ(plan.microbatch_count, 5);
      for (const StagePlan& stage : plan.stages) {
        for (const ReplicaPlan& replica : stage.replicas) EXPECT_EQ(replica.rows.count, 3);
      }
    }
  }
}

TEST(PipelinePlan, IterationsFillAStepThoughAMicrobatchIsNoMultipleOfThePipelines) {
  for (int64_t rows = 1; rows <= 24; ++rows) {
    for (int64_t pipelines = 1; pipelines <= rows; ++pipelines) {
      JobSpec job = pipeline_job(2, pipelines);
      job.training.micro_batch_size = rows;
      job.training.global_batch_size = 5 * rows;
      EXPECT_EQ(rows % pipeline_rows(job), 0) << rows << " to " << pipelines;
      EXPECT_LE(pipeline_rows(job) * pipelines, rows);
      EXPECT_EQ(pipeline_samples(job), static_cast<uint64_t>(5 * pipeline_rows(job)));
      const uint32_t workers = static_cast<uint32_t>(2 * pipelines);
      const Plan plan = make_pipeline_plan(job, pipeline_workers(workers), 1).value();
      EXPECT_EQ(plan.stages[0].replicas[0].rows.count, pipeline_rows(job));
    }
  }
}

TEST(PipelinePlan, RoutesStayWithinAPipeline) {
  const Plan plan = make_pipeline_plan(pipeline_job(3, 4), pipeline_workers(12), 1).value();
  const PipelineLayout layout = pipeline_layout(plan);
  for (uint32_t id = 0; id < layout.replica_count(); ++id) {
    for (int direction : {-1, 1}) {
      for (const Route& route : routes_from(plan, {id}, direction)) {
        EXPECT_EQ(layout.pipeline_of(route.to), layout.pipeline_of({id}));
      }
    }
  }
}

TEST(PipelinePlan, WithFewerWorkersThanStagesALayoutOfTheJobIsGivenUp) {
  JobSpec job = pipeline_job(2, 2);
  job.parallelism.layout = {1, 1, 1, 1};
  job.parallelism.virtual_stages = 2;
  job.parallelism.pipeline_parallel_schedule = "Interleaved1F1B";
  EXPECT_EQ(pipeline_layout(make_pipeline_plan(job, pipeline_workers(5), 1).value()),
            (PipelineLayout{2, 4}));
  EXPECT_EQ(pipeline_layout(make_pipeline_plan(job, pipeline_workers(1), 1).value()),
            (PipelineLayout{1, 1}));
}

TEST(PipelinePlan, WithoutADegreeTheWorkersAreSharedOutToThePipelines) {
  JobSpec job = pipeline_job(0, 2);
  for (uint32_t count = 1; count <= 9; ++count) {
    const Plan plan = make_pipeline_plan(job, pipeline_workers(count), 1).value();
    const uint32_t stages = std::max(1u, count / 2);
    EXPECT_EQ(pipeline_layout(plan), (PipelineLayout{count / stages, stages})) << count;
  }
}

TEST(PipelinePlan, ATiedEmbeddingWithSeveralClaimsInFlightNeedsOneStage) {
  JobSpec job = pipeline_job(2, 2);
  job.model.tied_head = true;
  EXPECT_TRUE(make_pipeline_plan(job, pipeline_workers(4), 1).ok());
  JobSpec one_rank = job;  // As after a loss: both ends are on it.
  one_rank.parallelism.virtual_stages = 2;
  one_rank.parallelism.pipeline_parallel_schedule = "Interleaved1F1B";
  one_rank.parallelism.pipeline_parallel_degree = 0;
  EXPECT_TRUE(make_pipeline_plan(one_rank, pipeline_workers(4), 1).ok());
  EXPECT_TRUE(make_pipeline_plan(one_rank, pipeline_workers(3), 1).ok());
  job.sync.claims_in_flight = 2;
  const absl::Status refused = make_pipeline_plan(job, pipeline_workers(4), 1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tie_word_embeddings"));
  EXPECT_TRUE(make_pipeline_plan(job, pipeline_workers(1), 1).ok()) << "one stage";
  job.parallelism.pipeline_parallel_degree = 1;
  EXPECT_TRUE(make_pipeline_plan(job, pipeline_workers(4), 1).ok());
}

TEST(PipelinePlan, ANewPlanLeavesStateWhereItIs) {
  ReplanRequest request;
  request.job = pipeline_job(2, 3);
  request.workers = pipeline_workers(6);
  request.generation = 1;
  const Plan before = replan_pipeline_replicas(request)->plan;
  for (uint32_t lost = 0; lost < 6; ++lost) {
    request.current = before;
    request.generation = 2;
    request.workers = pipeline_workers(6);
    request.workers.erase(request.workers.begin() + lost);
    const PlannedPipeline after = replan_pipeline_replicas(request).value();
    EXPECT_EQ(after.reason, "2 pipeline replicas of the job's pipeline");
    int moved = 0;
    for (const StagePlan& stage : after.plan.stages) {
      for (const ReplicaPlan& replica : stage.replicas) {
        const StagePlan& old =
            before.stages[static_cast<size_t>(&stage - after.plan.stages.data())];
        moved += std::none_of(old.replicas.begin(), old.replicas.end(),
                              [&](const auto& each) { return each.worker == replica.worker; });
      }
    }
    EXPECT_EQ(moved, 0) << "without w" << 2 * (lost + 1);
  }
}

}  // namespace
}  // namespace skein::plans
