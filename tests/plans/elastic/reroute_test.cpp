#include "plans/elastic/reroute.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/plan/layout_plan.hpp"
#include "small_plans.hpp"

namespace skein::plans {
namespace {

bool keeps_a_replica_of_each_stage(const Plan& plan, const std::vector<WorkerId>& workers) {
  for (const StagePlan& stage : plan.stages) {
    bool is_kept = false;
    for (const ReplicaPlan& replica : stage.replicas) {
      is_kept = is_kept || uses_only({.stages = {{{}, {replica}}}}, workers);
    }
    if (!is_kept) return false;
  }
  return true;
}

TEST(Reroute, IsValidAndMovesNothingWheneverEachStageKeepsAReplica) {
  int rerouted = 0;
  for (int64_t blocks = 2; blocks <= 6; ++blocks) {
    for (const JobSpec& job : small_jobs(blocks)) {
      const auto current = make_layout_plan(job, first_ids(6), 1);
      if (!current.ok()) continue;
      for (const std::vector<WorkerId>& lost : losses_of(first_ids(6))) {
        const std::vector<WorkerId> workers = without(first_ids(6), lost);
        const auto plan = reroute(*current, workers, job.model, 9);
        EXPECT_EQ(plan.ok(), keeps_a_replica_of_each_stage(*current, workers)) << plan.status();
        if (!plan.ok()) continue;
        ++rerouted;
        EXPECT_TRUE(validate(*plan, job.model).ok()) << validate(*plan, job.model);
        EXPECT_EQ(plan->generation, 9u);
        EXPECT_EQ(plan->actions, current->actions);
        EXPECT_TRUE(uses_only(*plan, workers));
        EXPECT_EQ(moved_elements(*plan, *current, job.model), 0);
      }
    }
  }
  EXPECT_GT(rerouted, 500);
}

TEST(Reroute, SplitsTheRowsOfTheLostOverItsStageOnly) {
  JobSpec job = small_job(4, true);
  job.training.micro_batch_size = 8;
  job.parallelism.replicas = {3, 2};
  auto current = make_layout_plan(job, first_ids(5), 1);
  ASSERT_TRUE(current.ok()) << current.status();
  // As a planner would split them for unlike devices.
  current->stages[1].replicas[0].rows = {0, 6};
  current->stages[1].replicas[1].rows = {6, 2};
  const auto plan = reroute(*current, ids({1, 3, 4, 5}), job.model, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages[0].replicas.size(), 2u);
  EXPECT_EQ(plan->stages[0].replicas[0].rows, (RowRange{0, 4}));
  EXPECT_EQ(plan->stages[0].replicas[1].rows, (RowRange{4, 4}));
  EXPECT_EQ(plan->stages[1].replicas[0].rows, (RowRange{0, 6}));
  EXPECT_EQ(plan->stages[1].replicas[1].rows, (RowRange{6, 2}));
}

TEST(Reroute, SaysWhichStageHasNoReplicaLeft) {
  JobSpec job = small_job(4, true);
  const auto current = make_layout_plan(job, first_ids(3), 1);
  ASSERT_TRUE(current.ok()) << current.status();
  const absl::Status status = reroute(*current, ids({1, 2}), job.model, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("stage 2"));
}

}  // namespace
}  // namespace skein::plans
