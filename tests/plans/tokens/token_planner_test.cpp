#include "plans/tokens/token_planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "plans/elastic/replan.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/profile/estimate.hpp"
#include "plans/simulator/simulator.hpp"
#include "plans/stragglers/speed_watch.hpp"
#include "plans/tokens/token_plan.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobSpec planned_job(int64_t batch) {
  JobSpec job;
  job.model.layers = 4;
  job.model.tied_head = false;
  job.sync.policy = "tokens";
  job.training.micro_batch_size = 1;
  job.training.global_batch_size = batch;
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  return job;
}

/// All alike. With `wide_head` the head takes as long for up to 32 rows as for one, and has as many
/// bytes as travel in the time of a hundred such steps.
std::vector<MeasuredWorker> measured_by(const JobSpec& job, uint32_t count, bool wide_head) {
  std::vector<MeasuredWorker> all;
  for (uint32_t id = 1; id <= count; ++id) {
    MeasuredWorker& each = all.emplace_back();
    each.id = WorkerId{2 * id};
    each.host = std::string("host-") + std::to_string(id);
    each.memory_bytes = int64_t{1} << 40;
    each.profile =
        estimate_profile(job.model, job.training.seq_len, {1, 8, 32}, job.optimizer, 1e12, 1e10);
    if (wide_head) {
      LayerProfile& head = each.profile.layers.back();
      head.at = {head.at.front(), head.at.front(), head.at.front()};
      head.parameter_bytes = 1'000'000'000;
    }
    for (uint32_t peer = 1; peer <= count; ++peer) {
      if (peer != id) each.links[WorkerId{2 * peer}] = {1e9, 50};
    }
  }
  return all;
}

ReplanRequest request_of(const JobSpec& job, uint32_t count, bool wide_head) {
  ReplanRequest request;
  request.job = job;
  request.measured = measured_by(job, count, wide_head);
  request.workers = ids_of(request.measured);
  request.generation = 3;
  return request;
}

TEST(TokenPlanner, AWideHeadIsASubModelOfItsOwnThatFewTrain) {
  const ReplanRequest request = request_of(planned_job(32), 4, /*wide_head=*/true);
  const auto chosen = replan_tokens(request);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  const Plan& plan = chosen->plan;
  EXPECT_EQ(plan.mode, kTokenMode);
  EXPECT_EQ(plan.generation, 3u);
  EXPECT_GT(plan.stages.size(), 1u) << chosen->reason;
  EXPECT_EQ(plan.stages.back().replicas.size(), 1u) << chosen->reason;
  EXPECT_EQ(plan.stages.front().replicas.size(), 4u);
  EXPECT_THAT(level_workers(plan).front(),
              ElementsAre(WorkerId{2}, WorkerId{4}, WorkerId{6}, WorkerId{8}));
  EXPECT_EQ(check_plan(request.job, plan), absl::OkStatus());
  const auto predicted = predict_tokens(request.job, plan, request.measured);
  ASSERT_TRUE(predicted.ok()) << predicted.status();
  EXPECT_EQ(predicted->step_us, chosen->objective_us);
  EXPECT_EQ(expected_busy_us(request.job, plan, request.measured), predicted->busy_us);
  EXPECT_EQ(predicted->busy_us.size(), 4u);
}

TEST(TokenPlanner, RecomputationIsPartOfWhatIsPredicted) {
  ReplanRequest request = request_of(planned_job(32), 4, /*wide_head=*/false);
  const auto kept = replan_tokens(request);
  ASSERT_TRUE(kept.ok()) << kept.status();
  request.job.training.recompute = true;
  const auto again = replan_tokens(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->plan.recompute);
  // A backward takes two forwards.
  EXPECT_GT(again->objective_us, 1.2 * kept->objective_us);
}

TEST(TokenPlanner, PlansThatPromiseAboutTheSameAreToBeTried) {
  JobSpec job = planned_job(32);
  EXPECT_TRUE(replan_tokens(request_of(job, 4, /*wide_head=*/true))->rivals.empty());
  job.tokens.trial_steps = 3;
  const ReplanRequest request = request_of(job, 4, /*wide_head=*/true);
  const auto chosen = replan_tokens(request);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  ASSERT_FALSE(chosen->rivals.empty());
  for (const PlannedPipeline& rival : chosen->rivals) {
    EXPECT_NE(rival.plan, chosen->plan);
    EXPECT_EQ(check_plan(job, rival.plan), absl::OkStatus());
    EXPECT_EQ(plan_workers(rival.plan), plan_workers(chosen->plan));
    EXPECT_GE(rival.objective_us, chosen->objective_us);
    EXPECT_LE(rival.objective_us, 1.04 * chosen->objective_us);
  }
}

/// Whoever has most memory is slow here, so that the fastest plans, by others, are slow ones.
TEST(TokenPlanner, TheFastestIsFoundAndWhatIsTriedPromisesTheSameWhoeverHasTheMemory) {
  JobSpec job = planned_job(32);
  job.tokens.trial_steps = 3;
  ReplanRequest request = request_of(job, 4, /*wide_head=*/true);
  for (const double slowdown : {1.05, 1.5, 4.0}) {
    for (int64_t gigabytes = 1; gigabytes <= 16; gigabytes *= 2) {
      request.measured = measured_by(job, 4, /*wide_head=*/true);
      MeasuredWorker& slow = request.measured.back();
      for (LayerProfile& layer : slow.profile.layers) {
        for (auto& at : layer.at) {
          at = {at.forward_us * slowdown, at.backward_input_us * slowdown,
                at.backward_weight_us * slowdown};
        }
      }
      for (MeasuredWorker& each : request.measured) {
        if (&each != &slow) each.memory_bytes = gigabytes * 1'000'000'000;
      }
      request.job.tokens.trial_steps = 0;
      const auto untried = replan_tokens(request);
      request.job.tokens.trial_steps = 3;
      const auto chosen = replan_tokens(request);
      ASSERT_EQ(untried.ok(), chosen.ok());
      if (!chosen.ok()) continue;
      EXPECT_DOUBLE_EQ(untried->objective_us, chosen->objective_us)
          << "it is not the first that fits, but the fastest: " << slowdown << ", " << gigabytes;
      EXPECT_LE(chosen->rivals.size(), 2u);
      for (const PlannedPipeline& rival : chosen->rivals) {
        EXPECT_GE(rival.objective_us, chosen->objective_us) << slowdown << ", " << gigabytes;
        EXPECT_LE(rival.objective_us, 1.04 * chosen->objective_us) << slowdown << ", " << gigabytes;
      }
    }
  }
}

/// Its lists of actions are what may have to be kept, and nobody follows them.
TEST(TokenPlanner, TheSimulatorOfPipelinesTakesNoSuchPlan) {
  const ReplanRequest request = request_of(planned_job(32), 3, /*wide_head=*/true);
  const Plan plan = with_positions(replan_tokens(request)->plan, request.workers).value();
  const PlanRequest asked = measured_request(request.job, request.measured);
  const auto simulated = simulate(plan, asked.profile, asked.cluster, asked.simulation);
  EXPECT_EQ(simulated.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TokenPlanner, TokensTileEveryBatch) {
  for (const int64_t batch : {7, 24, 30, 32}) {
    const ReplanRequest request = request_of(planned_job(batch), 5, /*wide_head=*/false);
    const auto chosen = replan_tokens(request);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(check_plan(request.job, chosen->plan), absl::OkStatus()) << batch;
  }
}

TEST(TokenPlanner, WhatDoesNotFitTheMemoryIsNotChosen) {
  ReplanRequest request = request_of(planned_job(32), 4, /*wide_head=*/true);
  const Plan fastest = replan_tokens(request)->plan;
  // One worker has no place for the head's state, which all others have.
  request.measured[0].memory_bytes = 3'000'000'000;
  const auto chosen = replan_tokens(request);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  ASSERT_EQ(fastest.stages.back().replicas.front().worker, WorkerId{2});
  EXPECT_NE(chosen->plan.stages.back().replicas.front().worker, WorkerId{2});
  for (MeasuredWorker& each : request.measured) each.memory_bytes = 1000;
  EXPECT_THAT(std::string(replan_tokens(request).status().message()),
              HasSubstr("no choice of sub-models and tokens fits the memory"));
}

TEST(TokenPlanner, WhoHasNotMeasuredIsNamed) {
  ReplanRequest request = request_of(planned_job(32), 4, /*wide_head=*/false);
  request.measured.pop_back();
  EXPECT_THAT(std::string(replan_tokens(request).status().message()), HasSubstr("w8"));
}

TEST(TokenPlanner, ForNowTheTokensOfBeforeAreSharedByThoseWhoAreHere) {
  ReplanRequest request = request_of(planned_job(32), 4, /*wide_head=*/true);
  EXPECT_EQ(quick_replan_tokens(request).status().code(), absl::StatusCode::kNotFound);
  request.current = replan_tokens(request)->plan;
  request.generation = 4;
  const WorkerId head = request.current->stages.back().replicas.front().worker;
  request.workers = {head, WorkerId{10}};
  std::sort(request.workers.begin(), request.workers.end());
  const auto quick = quick_replan_tokens(request);
  ASSERT_TRUE(quick.ok()) << quick.status();
  EXPECT_EQ(quick->plan.generation, 4u);
  EXPECT_EQ(token_shape(quick->plan).samples_of_token,
            token_shape(*request.current).samples_of_token);
  EXPECT_EQ(level_workers(quick->plan).front(), request.workers);
  EXPECT_THAT(level_workers(quick->plan).back(), ElementsAre(head));
  // The job was resumed with a batch that has no place for these tokens.
  request.job.training.global_batch_size = 33;
  EXPECT_FALSE(quick_replan_tokens(request).ok());
}

/// One of the others may lack the memory for it, or be slow: the planner knows, the rule does not.
TEST(TokenPlanner, ASubModelThatHasLostAllItsWorkersIsForThePlannerToGive) {
  ReplanRequest request = request_of(planned_job(32), 4, /*wide_head=*/true);
  request.current = replan_tokens(request)->plan;
  ASSERT_EQ(request.current->stages.back().replicas.size(), 1u);
  std::erase(request.workers, request.current->stages.back().replicas.front().worker);
  EXPECT_EQ(quick_replan_tokens(request).status().code(), absl::StatusCode::kNotFound);
  std::erase_if(request.measured, [&](const MeasuredWorker& each) {
    return !std::binary_search(request.workers.begin(), request.workers.end(), each.id);
  });
  request.measured.front().memory_bytes = 3'000'000'000;  // Too little for the head's state.
  const auto chosen = replan_tokens(request);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(level_workers(chosen->plan).back(),
              ::testing::Not(::testing::Contains(request.workers.front())));
}

}  // namespace
}  // namespace skein::plans
