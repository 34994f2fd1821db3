#include "plans/elastic/route_around.hpp"

#include <gtest/gtest.h>

#include "plans/plan/layout_plan.hpp"
#include "small_plans.hpp"

namespace skein::plans {
namespace {

/// A plan of so many stages for these workers, of a model of 6 layers.
PlannedPipeline planned(int64_t stages, int64_t pipelines, const std::vector<WorkerId>& workers) {
  JobSpec job = small_job(4, false);
  job.parallelism.pipeline_parallel_degree = stages;
  job.parallelism.data_parallel_replicate_degree = pipelines;
  return {*make_layout_plan(job, workers, 1), 0, ""};
}

/// Any plan can be given the newest step's state.
RouteAroundRequest request_of(const WorkerPairs& apart, const std::vector<WorkerId>& workers) {
  RouteAroundRequest request;
  request.apart = apart;
  request.workers = workers;
  request.first_step = [](const Plan&) { return uint64_t{7}; };
  request.newest_step = 7;
  return request;
}

WorkerPairs pairs(const std::vector<std::pair<uint32_t, uint32_t>>& numbers) {
  WorkerPairs apart;
  for (const auto& [a, b] : numbers) apart.insert(pair_of({a}, {b}));
  return apart;
}

void expect_apart(const Plan& plan, const WorkerPairs& apart) {
  for (const auto& [a, b] : apart) EXPECT_FALSE(are_neighbours(plan, a, b)) << a << " " << b;
}

bool has_part(const Plan& plan, WorkerId worker) {
  return !uses_only(plan, without(first_ids(9), {worker}));
}

TEST(RouteAround, NeighboursSendToOneAnotherOrAreInOneGroup) {
  const Plan plan = planned(3, 2, first_ids(6)).plan;  // Stages of workers by twos.
  for (const StagePlan& stage : plan.stages) {
    EXPECT_TRUE(are_neighbours(plan, stage.replicas[0].worker, stage.replicas[1].worker));
  }
  const WorkerId first = plan.stages[0].replicas[0].worker;
  EXPECT_TRUE(are_neighbours(plan, first, plan.stages[1].replicas[0].worker));
  EXPECT_FALSE(are_neighbours(plan, first, plan.stages[1].replicas[1].worker)) << "no rows shared";
  EXPECT_FALSE(are_neighbours(plan, first, plan.stages[2].replicas[0].worker));
}

TEST(RouteAround, BothEndsOfATiedEmbeddingAreNeighbours) {
  JobSpec job = small_job(4, true);
  job.parallelism.pipeline_parallel_degree = 3;
  const Plan plan = *make_layout_plan(job, first_ids(3), 1);
  EXPECT_TRUE(are_neighbours(plan, {1}, {3}));
}

TEST(RouteAround, WorkersOfAPipelineChangePlaces) {
  const WorkerPairs apart = pairs({{1, 2}});
  const RoutedAround routed =
      route_around(planned(3, 1, first_ids(3)), request_of(apart, first_ids(3)));
  ASSERT_TRUE(routed.is_apart);
  EXPECT_NE(routed.difference, "");
  expect_apart(routed.chosen.plan, apart);
  for (uint32_t worker = 1; worker <= 3; ++worker) {
    EXPECT_TRUE(has_part(routed.chosen.plan, {worker})) << worker;
  }
}

TEST(RouteAround, APlanThatDoesNotFitIsNotTaken) {
  RouteAroundRequest request = request_of(pairs({{1, 2}}), first_ids(3));
  request.fits = [](const Plan& plan) {  // Only the first worker has the memory of stage 0.
    return plan.stages[0].replicas[0].worker == WorkerId{1};
  };
  const RoutedAround routed = route_around(planned(3, 1, first_ids(3)), request);
  ASSERT_TRUE(routed.is_apart);
  EXPECT_EQ(routed.chosen.plan.stages[0].replicas[0].worker, WorkerId{1});
  EXPECT_EQ(routed.chosen.plan.stages[1].replicas[0].worker, WorkerId{3});
}

TEST(RouteAround, EverySingleLinkOfTwoByTwoCanBeDoneWithout) {
  for (uint32_t a = 1; a <= 4; ++a) {
    for (uint32_t b = a + 1; b <= 4; ++b) {
      const WorkerPairs apart = pairs({{a, b}});
      const RoutedAround routed =
          route_around(planned(2, 2, first_ids(4)), request_of(apart, first_ids(4)));
      ASSERT_TRUE(routed.is_apart) << a << " " << b;
      expect_apart(routed.chosen.plan, apart);
    }
  }
}

TEST(RouteAround, ASpareTakesAPlaceBeforeAnybodyIsLeftOut) {
  const WorkerPairs apart = pairs({{1, 2}});
  const RoutedAround routed =
      route_around(planned(2, 1, first_ids(2)), request_of(apart, first_ids(3)));
  ASSERT_TRUE(routed.is_apart);
  EXPECT_TRUE(has_part(routed.chosen.plan, {3}));
}

TEST(RouteAround, TheWorkerThatTheFewestCanReachHasNoPart) {
  RouteAroundRequest request = request_of(pairs({{1, 2}, {2, 3}}), first_ids(3));
  request.make_plan = [](const std::vector<WorkerId>& workers) {
    return planned(1, static_cast<int64_t>(workers.size()), workers);
  };
  const RoutedAround routed = route_around(planned(1, 3, first_ids(3)), request);
  ASSERT_TRUE(routed.is_apart);
  EXPECT_EQ(routed.difference, "w2 has no part");
  EXPECT_TRUE(has_part(routed.chosen.plan, {1}));
  EXPECT_TRUE(has_part(routed.chosen.plan, {3}));
}

TEST(RouteAround, OfTwoThatAreAsWellConnectedTheHigherNumberHasNoPart) {
  RouteAroundRequest request = request_of(pairs({{1, 3}}), first_ids(3));
  request.make_plan = [](const std::vector<WorkerId>& workers) {
    return planned(1, static_cast<int64_t>(workers.size()), workers);
  };
  EXPECT_EQ(route_around(planned(1, 3, first_ids(3)), request).difference, "w3 has no part");
}

TEST(RouteAround, APlanThatKeepsTheNewestStepIsTakenBeforeOthers) {
  RouteAroundRequest request = request_of(pairs({{1, 2}}), first_ids(2));
  request.make_plan = [](const std::vector<WorkerId>& workers) {
    return planned(1, static_cast<int64_t>(workers.size()), workers);
  };
  request.may_lose_steps = true;
  request.first_step = [](const Plan& plan) { return has_part(plan, {2}) ? 7u : 3u; };
  const RoutedAround routed = route_around(planned(2, 1, first_ids(2)), request);
  ASSERT_TRUE(routed.is_apart);
  EXPECT_EQ(routed.difference, "w1 has no part");
}

TEST(RouteAround, StepsAreLostOnlyIfTheyMay) {
  RouteAroundRequest request = request_of(pairs({{1, 2}}), first_ids(2));
  request.make_plan = [](const std::vector<WorkerId>& workers) {
    return planned(1, static_cast<int64_t>(workers.size()), workers);
  };
  request.first_step = [](const Plan&) { return uint64_t{3}; };
  const PlannedPipeline chosen = planned(2, 1, first_ids(2));
  const RoutedAround kept = route_around(chosen, request);
  EXPECT_FALSE(kept.is_apart);
  EXPECT_EQ(kept.chosen.plan, chosen.plan);
  request.may_lose_steps = true;
  EXPECT_TRUE(route_around(chosen, request).is_apart);
}

}  // namespace
}  // namespace skein::plans
