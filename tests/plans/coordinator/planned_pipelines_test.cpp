// What the coordination does with pipeline replicas that the planner chooses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/modes/pipeline_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobSpec planned_rounds() {
  JobSpec job = rounds_of_four();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  job.sync.policy = "overlapped";
  return job;
}

std::vector<std::string> texts_of(const CoordinatorDecisions& decisions, const std::string& event) {
  std::vector<std::string> found;
  for (const auto& each : decisions) {
    const auto* told = std::get_if<RunEvent>(&each);
    if (told != nullptr && told->name == event) found.push_back(told->text);
  }
  return found;
}

TEST(PlannedPipelines, EachWorkerThatHoldsTheModelTrainsAlone) {
  PipelineCluster cluster(planned_rounds());
  ASSERT_NE(find<AssignPlan>(cluster.begun), nullptr);
  const Plan& plan = find<AssignPlan>(cluster.begun)->plan;
  EXPECT_EQ(plan.mode, kLocalMode);
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_EQ(plan.stages[0].replicas.size(), 3u);
}

TEST(PlannedPipelines, AfterALossTheOthersGoOnWithoutThePlanner) {
  PipelineCluster cluster(planned_rounds());
  cluster.plans_at_once = false;
  cluster.dead.insert(1);
  CoordinatorDecisions rest = cluster.lose(2);
  for (uint64_t step = 0; step < 20 && count<QuiesceWorker>(rest) == 0; ++step) {
    for (uint32_t pipeline : {0u, 2u}) {
      append(rest, cluster.run(cluster.ready_pipeline(pipeline, step)));
    }
  }
  ASSERT_EQ(count<QuiesceWorker>(rest), 2u);
  const uint64_t done = cluster.coordination.steps_done();
  const CoordinatorDecisions assigned = cluster.all_quiesced(3, {{done, kAll}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->plan.stages[0].replicas.size(), 2u);
  EXPECT_EQ(count<RequestPlan>(assigned), 0u);
}

TEST(PlannedPipelines, WhoBecomesSlowIsToldAndAnotherPlanIsLookedFor) {
  JobSpec job = planned_rounds();
  job.training.steps = 4000;
  job.sync.round_steps = 100;  // Else all would often wait for the slow one.
  PipelineCluster cluster(job);
  cluster.step_us[1] = 4 * cluster.step_us[0];
  CoordinatorDecisions told = cluster.run(cluster.begun, 3000);
  append(told, cluster.answered(cluster.coordination.on_timer(++cluster.now)));
  EXPECT_THAT(texts_of(told, "worker.speed_changed"), ElementsAre(HasSubstr("w2")));
  EXPECT_THAT(
      texts_of(told, "straggler.no_mitigation"),
      ElementsAre(HasSubstr("w2 takes 4 times as long as planned: no plan promises 5 % more")));
}

/// Then there are two pipeline replicas, the second of which is one worker.
TEST(PlannedPipelines, WhoBecomesSlowIsToldWithSeveralClaimsInFlight) {
  JobSpec job = planned_rounds();
  job.training.steps = 4000;
  job.sync.round_steps = 100;
  job.sync.claims_in_flight = 3;
  PipelineCluster cluster(job);
  cluster.step_us[1] = 4 * cluster.step_us[0];
  CoordinatorDecisions told = cluster.run(cluster.begun, 3000);
  append(told, cluster.answered(cluster.coordination.on_timer(++cluster.now)));
  EXPECT_THAT(texts_of(told, "worker.speed_changed"), ElementsAre(HasSubstr("w3")));
  EXPECT_EQ(texts_of(told, "straggler.no_mitigation").size() +
                texts_of(told, "straggler.mitigation").size(),
            1u);
}

TEST(PlannedPipelines, WhoBecomesSlowSharesAPipelineWhereAllMeetOften) {
  JobSpec job = planned_rounds();
  job.training.steps = 400;
  PipelineCluster cluster(job);
  cluster.step_us[1] = 4 * cluster.step_us[0];
  CoordinatorDecisions told = cluster.run(cluster.begun, 300);
  append(told, cluster.answered(cluster.coordination.on_timer(++cluster.now)));
  EXPECT_THAT(texts_of(told, "straggler.mitigation"),
              ElementsAre(HasSubstr("2 pipeline replicas of 2+1 workers")));
}

TEST(PlannedPipelines, WhoHasNoPlaceIsToldOnce) {
  PipelineCluster cluster(planned_rounds());
  const auto join_small = [&](uint32_t id) {
    CoordinatorDecisions told = cluster.join(id);
    append(told, cluster.decided(cluster.profiled(id, planned_rounds(), 1e9, /*memory=*/1000)));
    for (int tick = 0; tick < 20; ++tick) {
      cluster.now += 200'000;
      for (const auto& [worker, member] : std::map(cluster.coordination.members())) {
        EXPECT_TRUE(cluster.coordination.on_heartbeat(worker, {}, cluster.now).is_accepted());
      }
      append(told, cluster.answered(cluster.coordination.on_timer(cluster.now)));
    }
    return texts_of(told, "worker.spare");
  };
  EXPECT_THAT(join_small(4), ElementsAre(HasSubstr("w4 is spare")));
  EXPECT_THAT(join_small(5), ElementsAre(HasSubstr("w4, w5 are spare")));
}

}  // namespace
}  // namespace skein::plans
