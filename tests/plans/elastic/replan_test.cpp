#include "plans/elastic/replan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../planner/planner_requests.hpp"
#include "absl/strings/str_cat.h"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/pipeline_cuts.hpp"
#include "plans/profile/estimate.hpp"
#include "plans/stragglers/speed_watch.hpp"
#include "plans/tokens/token_plan.hpp"
#include "small_plans.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

/// A request for these workers, after `current`.
ReplanRequest request_of(JobSpec job, std::vector<WorkerId> workers, Plan current) {
  return {std::move(job), std::nullopt, std::move(workers), {}, std::move(current), false, 2};
}

/// A job of 4 blocks whose plan the planner chooses.
JobSpec auto_job() {
  JobSpec job = small_job(4, false);
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  return job;
}

std::vector<MeasuredWorker> measured(const std::vector<WorkerId>& workers) {
  std::vector<MeasuredWorker> all;
  for (const WorkerId worker : workers) {
    all.push_back({worker, "host", even_profile(6, {}), 0, {}});
  }
  return all;
}

void expect_usable(const absl::StatusOr<PlannedPipeline>& chosen, const ReplanRequest& request) {
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_TRUE(validate(chosen->plan, request.job.model).ok())
      << validate(chosen->plan, request.job.model);
  EXPECT_TRUE(uses_only(chosen->plan, request.workers)) << to_text(chosen->plan);
  EXPECT_EQ(chosen->plan.generation, request.generation);
  EXPECT_FALSE(chosen->reason.empty());
  EXPECT_EQ(chosen->plan.microbatch_count * chosen->plan.microbatch_rows,
            request.job.training.global_batch_size);
}

/// Workers of each stage, in the order in which a ring goes over them.
std::vector<std::vector<uint32_t>> placed(const Plan& plan) {
  std::vector<std::vector<uint32_t>> all;
  for (const StagePlan& stage : plan.stages) {
    all.emplace_back();
    for (const ReplicaPlan& replica : stage.replicas) all.back().push_back(replica.worker.value);
  }
  return all;
}

TEST(Replan, WhereNoPlanOfThePlannerFitsMicroBatchesAreHalved) {
  ReplanRequest request{auto_job(), std::nullopt, first_ids(2), {}, std::nullopt};
  const int64_t own_rows = request.job.training.micro_batch_size;
  int refused = 0, halved = 0;
  for (int64_t bytes = 4000; bytes < int64_t{1} << 40; bytes += bytes / 10) {
    request.measured = measured(request.workers);
    for (MeasuredWorker& each : request.measured) {
      each.profile = estimate_profile(request.job.model, request.job.training.seq_len,
                                      {1, own_rows}, request.job.optimizer, 1e9, 1e9);
      each.memory_bytes = 2 * bytes;  // Both share the host's.
    }
    const auto chosen = replan(request);
    if (!chosen.ok()) {
      ++refused;
      EXPECT_TRUE(absl::IsResourceExhausted(chosen.status())) << chosen.status();
      continue;
    }
    expect_usable(chosen, request);
    EXPECT_TRUE(check_fits(request, chosen->plan).ok()) << bytes;
    if (chosen->plan.microbatch_rows >= own_rows) break;
    ++halved;
    EXPECT_THAT(chosen->reason, HasSubstr(absl::StrCat("training.micro_batch_size = ", own_rows)));
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(halved, 0);
}

/// Whoever joins first has the lowest number, wherever it runs.
TEST(Replan, ALayoutPlacesWorkersOfOneHostSideBySide) {
  JobSpec job = small_job(4, false);
  job.parallelism.pipeline_parallel_degree = 2;
  job.parallelism.replicas = {3, 3};
  job.training.micro_batch_size = job.training.global_batch_size = 6;
  ReplanRequest request{job, std::nullopt, first_ids(6), {}, std::nullopt};
  request.hosts = {{{1}, "a"}, {{2}, "b"}, {{3}, "a"}, {{4}, "b"}, {{6}, "a"}};
  const auto stages = replan(request);
  ASSERT_TRUE(stages.ok()) << stages.status();
  EXPECT_EQ(placed(stages->plan), (std::vector<std::vector<uint32_t>>{{1, 3, 6}, {2, 4, 5}}));
  request.hosts.clear();
  EXPECT_EQ(placed(replan(request)->plan),
            (std::vector<std::vector<uint32_t>>{{1, 2, 3}, {4, 5, 6}}));
  // Whoever has state keeps its place, wherever it runs.
  request.current = replan(request)->plan;
  request.hosts = {{{1}, "a"}, {{2}, "b"}, {{3}, "a"}, {{4}, "b"}, {{6}, "a"}};
  EXPECT_EQ(placed(replan(request)->plan), placed(*request.current));
}

class ReplanAfterLosses : public ::testing::TestWithParam<int64_t> {};  // Blocks.

TEST_P(ReplanAfterLosses, AlwaysFindsAValidPlanOfLiveWorkers) {
  for (const JobSpec& job : small_jobs(GetParam())) {
    for (uint32_t count = 1; count <= 6; ++count) {
      const auto current = make_layout_plan(job, first_ids(count), 1);
      if (!current.ok()) continue;
      for (const std::vector<WorkerId>& lost : losses_of(first_ids(count))) {
        for (bool is_urgent : {false, true}) {
          ReplanRequest request = request_of(job, without(first_ids(count), lost), *current);
          request.is_urgent = is_urgent;
          expect_usable(replan(request), request);
          request.workers.push_back({count + 1});
          expect_usable(replan(request), request);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, ReplanAfterLosses, ::testing::Range(int64_t{2}, int64_t{7}));

TEST(Replan, IsTheLayoutOfTheJobWhenNothingWasInForce) {
  const JobSpec job = small_job(4, true);
  const auto chosen = replan({job, std::nullopt, first_ids(3), {}, std::nullopt, false, 5});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->plan, *make_layout_plan(job, first_ids(3), 5));
}

TEST(Replan, RestoresTheLayoutWithAFreeWorkerInThePlaceOfTheLost) {
  for (const JobSpec& job : small_jobs(4)) {
    const auto first = make_layout_plan(job, first_ids(4), 1);
    if (!first.ok()) continue;
    for (uint32_t lost = 1; lost <= 4; ++lost) {
      std::vector<WorkerId> workers = without(first_ids(4), ids({lost}));
      workers.push_back({5});
      for (bool is_urgent : {false, true}) {
        ReplanRequest request = request_of(job, workers, *first);
        request.is_urgent = is_urgent;
        request.generation = 1;
        const auto chosen = replan(request);
        ASSERT_TRUE(chosen.ok()) << chosen.status();
        Plan wanted = *first;
        // Where the layout left spares, the first of them is as good as the new one.
        const auto spares = static_cast<uint32_t>(4 - worker_count(*first));
        const WorkerId taker{spares == 0 ? 5 : 5 - spares};
        for (StagePlan& stage : wanted.stages) {
          for (ReplicaPlan& replica : stage.replicas) {
            if (replica.worker.value == lost) replica.worker = taker;
          }
        }
        EXPECT_EQ(chosen->plan.stages, wanted.stages) << to_text(chosen->plan);
        EXPECT_EQ(chosen->plan, wanted);
      }
    }
  }
}

TEST(Replan, ReturnsToTheLayoutThatWasLeftForAnEvenOne) {
  JobSpec job = small_job(6, true);
  job.parallelism.pipeline_parallel_degree = 4;
  const auto first = make_layout_plan(job, first_ids(4), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto shrunk = replan(request_of(job, ids({1, 3, 4}), *first));
  ASSERT_TRUE(shrunk.ok()) << shrunk.status();
  EXPECT_EQ(shrunk->plan.stages.size(), 3u);
  EXPECT_THAT(shrunk->reason, HasSubstr("needs 4 workers and there are 3"));
  ReplanRequest grown = request_of(job, ids({1, 3, 4, 5}), shrunk->plan);
  grown.generation = 1;
  const auto back = replan(grown);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->plan.actions, first->actions);
  for (size_t s = 0; s < 4; ++s) {
    EXPECT_EQ(back->plan.stages[s].layers, first->stages[s].layers);
    EXPECT_EQ(back->plan.stages[s].replicas[0].rows, first->stages[s].replicas[0].rows);
  }
}

TEST(Replan, RoutesAroundALossWhenItIsUrgentAndTheLayoutNeedsMoreWorkers) {
  JobSpec job = small_job(4, true);
  job.parallelism.pipeline_parallel_degree = 2;
  job.parallelism.data_parallel_replicate_degree = 2;
  const auto first = make_layout_plan(job, first_ids(4), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  ReplanRequest request = request_of(job, ids({1, 3, 4}), *first);
  request.is_urgent = true;
  const auto urgent = replan(request);
  ASSERT_TRUE(urgent.ok()) << urgent.status();
  EXPECT_EQ(moved_elements(urgent->plan, *first, job.model), 0);
  EXPECT_EQ(urgent->plan.stages.size(), 2u);
  EXPECT_THAT(urgent->reason, HasSubstr("w2"));
  request.is_urgent = false;
  EXPECT_THAT(placed(replan(request)->plan),
              ::testing::ElementsAre(::testing::SizeIs(2), ::testing::SizeIs(1)));
}

TEST(Replan, AnEvenLayoutHasNoMoreStagesThanTheJob) {
  JobSpec job = small_job(4, true);
  job.parallelism.pipeline_parallel_degree = 1;
  job.parallelism.data_parallel_replicate_degree = 3;
  const auto first = make_layout_plan(job, first_ids(3), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  const ReplanRequest request = request_of(job, ids({1, 3}), *first);
  const auto chosen = replan(request);
  expect_usable(chosen, request);
  EXPECT_THAT(placed(chosen->plan), ::testing::ElementsAre(::testing::SizeIs(2)));
}

TEST(Replan, ReplicatesTheFirstStagesWhenThereAreMoreWorkersThanLayers) {
  JobSpec job = small_job(2, true);
  job.parallelism.replicas = {2, 2, 2, 2};
  const auto first = make_layout_plan(job, first_ids(8), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto chosen = replan(request_of(job, first_ids(6), *first));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  std::vector<size_t> replicas;
  for (const StagePlan& stage : chosen->plan.stages) replicas.push_back(stage.replicas.size());
  EXPECT_EQ(replicas, (std::vector<size_t>{2, 2, 1, 1}));
}

TEST(Replan, KeepsTheScheduleIfOneStagePerRankAllowsIt) {
  JobSpec job = small_job(4, false);
  job.parallelism.pipeline_parallel_degree = 4;
  for (const ScheduleKind kind : schedule_kinds()) {
    if (kind == ScheduleKind::kCustom) continue;
    job.parallelism.pipeline_parallel_schedule = std::string(to_text(kind));
    const auto first = make_layout_plan(job, first_ids(4), 1);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto chosen = replan(request_of(job, first_ids(3), *first));
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(chosen->plan.schedule, kind);
  }
}

TEST(Replan, Takes1F1BForAScheduleThatIsWrittenByHand) {
  const JobSpec job = small_job(4, true);
  Plan given = *make_layout_plan(job, first_ids(3), 1);
  given.schedule = ScheduleKind::kCustom;
  const ReplanRequest request{job, given, first_ids(2), {}, given, false, 2};
  const auto chosen = replan(request);
  expect_usable(chosen, request);
  EXPECT_EQ(chosen->plan.schedule, ScheduleKind::k1F1B);
}

TEST(Replan, LeavesVirtualStagesWhenTheirEndsWouldMeet) {
  JobSpec job = small_job(4, true);
  job.parallelism.virtual_stages = 2;
  job.parallelism.pipeline_parallel_schedule = "Interleaved1F1B";
  const auto first = make_layout_plan(job, first_ids(2), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto chosen = replan(request_of(job, first_ids(1), *first));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->plan.stages.size(), 1u);
  // In a first plan that is a mistake in the job.
  EXPECT_FALSE(replan({job, std::nullopt, first_ids(1), {}, std::nullopt, false, 1}).ok());
}

TEST(Replan, UsesThePlanFileWhileTheWorkersSufficeForIt) {
  JobSpec job = small_job(4, true);
  Plan given = *make_layout_plan(job, first_ids(3), 1);
  given.recompute = true;
  ReplanRequest request{job, given, ids({2, 5, 7}), {}, std::nullopt, false, 3};
  const auto chosen = replan(request);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->plan.stages[1].replicas[0].worker, WorkerId{5});
  request.workers = ids({2, 7});
  request.current = chosen->plan;
  const auto fewer = replan(request);
  expect_usable(fewer, request);
  EXPECT_EQ(fewer->plan.stages.size(), 2u);
  EXPECT_TRUE(fewer->plan.recompute);
  request.given->microbatch_rows = 3;
  EXPECT_FALSE(replan(request).ok());
}

TEST(Replan, AsksThePlannerWhoseWorkersAreTheLiveOnes) {
  const std::vector<WorkerId> workers = ids({2, 3, 7});
  ReplanRequest request{auto_job(),   std::nullopt, workers, measured(ids({1, 2, 3, 7})),
                        std::nullopt, false,        4};
  const auto chosen = replan(request);
  expect_usable(chosen, request);
  EXPECT_GT(chosen->objective_us, 0);
}

TEST(Replan, RefusesToAskThePlannerForWorkersThatHaveNotMeasured) {
  const ReplanRequest request{
      auto_job(), std::nullopt, ids({2, 3, 7}), measured(ids({3})), std::nullopt, false, 4};
  const absl::Status status = replan(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("none of w2, w7"));
}

TEST(Replan, KeepsThePlannersPlanWithoutTheLostOnlyWhenItIsUrgent) {
  JobSpec layout = small_job(4, false);
  layout.parallelism.replicas = {2, 2};
  const auto current = make_layout_plan(layout, first_ids(4), 1);
  ASSERT_TRUE(current.ok()) << current.status();
  ReplanRequest request = request_of(auto_job(), ids({1, 2, 4}), *current);
  request.measured = measured(request.workers);
  request.is_urgent = true;
  const auto urgent = replan(request);
  expect_usable(urgent, request);
  EXPECT_EQ(moved_elements(urgent->plan, *current, layout.model), 0);
  EXPECT_EQ(urgent->objective_us, 0);
  request.is_urgent = false;
  EXPECT_GT(replan(request)->objective_us, 0);
  // A stage without a replica needs another plan, however urgent it is.
  request.is_urgent = true;
  request.workers = ids({1, 2});
  EXPECT_GT(replan(request)->objective_us, 0);
}

TEST(QuickReplan, KeepsThePlanWithoutTheLostWhileEveryStageHasAReplica) {
  JobSpec layout = small_job(4, false);
  layout.parallelism.replicas = {2, 2};
  const auto current = make_layout_plan(layout, first_ids(4), 1);
  ASSERT_TRUE(current.ok()) << current.status();
  ReplanRequest request = request_of(auto_job(), ids({1, 2, 4}), *current);
  request.measured = measured(request.workers);
  const auto quick = quick_replan(request);
  expect_usable(quick, request);
  EXPECT_EQ(moved_elements(quick->plan, *current, layout.model), 0);
}

TEST(QuickReplan, LooksAtTheMemoryUnlessWhatIsThereIsOnlySaved) {
  JobSpec layout = small_job(4, false);
  layout.parallelism.replicas = {2, 2};
  const auto current = make_layout_plan(layout, first_ids(4), 1);
  ASSERT_TRUE(current.ok()) << current.status();
  ReplanRequest request = request_of(auto_job(), ids({1, 2, 4}), *current);
  for (const WorkerId worker : request.workers) {
    const Profile profile = estimate_profile(request.job.model, request.job.training.seq_len,
                                             {1, 2}, request.job.optimizer, 1e9, 1e9);
    request.measured.push_back({worker, "host", profile, 3000, {}});
  }
  EXPECT_EQ(quick_replan(request).status().code(), absl::StatusCode::kResourceExhausted);
  request.only_saves = true;
  expect_usable(quick_replan(request), request);
}

TEST(QuickReplan, CutsByTheSpeedsOfWhoIsLeftInTheOrderOfTheirStages) {
  JobSpec layout = small_job(4, false);
  layout.parallelism.pipeline_parallel_degree = 3;
  const auto current = make_layout_plan(layout, ids({3, 1, 2}), 1);
  ASSERT_TRUE(current.ok()) << current.status();
  ReplanRequest request = request_of(auto_job(), ids({2, 3}), *current);
  request.measured = measured(request.workers);
  slow_down(request.measured[0], 4);  // Worker 2.
  const auto quick = quick_replan(request);
  expect_usable(quick, request);
  ASSERT_EQ(quick->plan.stages.size(), 2u);
  EXPECT_EQ(quick->plan.stages[0].replicas[0].worker, WorkerId{3}) << "it held the first stage";
  EXPECT_GT(quick->plan.stages[0].layers.size(), quick->plan.stages[1].layers.size());
  EXPECT_THAT(quick->reason, HasSubstr("by speed"));
}

/// As "auto" does when all are to do every step together again.
TEST(QuickReplan, AfterPipelineReplicasMicroBatchesAreTheJobs) {
  JobSpec job = auto_job();
  job.sync.policy = "auto";
  job.parallelism.data_parallel_replicate_degree = 2;
  job.training.micro_batch_size = 8;
  job.training.global_batch_size = 32;
  const std::vector<PipelineCuts> alone = {{ids({1}), {}}, {ids({2}), {}}, {ids({3}), {}}};
  const auto current = make_plan_of_cuts(job, alone, 1);
  ASSERT_TRUE(current.ok()) << current.status();
  ReplanRequest request = request_of(job, ids({1, 2}), *current);
  request.measured = measured(request.workers);
  for (const bool is_urgent : {false, true}) {
    request.is_urgent = is_urgent;
    expect_usable(quick_replan(request), request);
    expect_usable(replan(request), request);
    EXPECT_EQ(replan(request)->plan.mode, kSynchronousMode);
  }
}

/// A run by tokens may be resumed with another policy.
TEST(QuickReplan, AfterTokensStagesHaveTheJobsMicroBatchesInParts) {
  JobSpec job = auto_job();
  JobSpec by_tokens = job;
  by_tokens.sync.policy = "tokens";
  const int64_t batch = job.training.global_batch_size;
  ASSERT_LT(job.training.micro_batch_size, batch);
  const Plan current = assemble_token_plan(
      by_tokens, {{{0, 3}, 1, first_ids(3)}, {{3, 6}, batch, first_ids(3)}}, batch);
  ASSERT_TRUE(validate(current, job.model).ok()) << validate(current, job.model);
  for (const std::vector<WorkerId>& here : {first_ids(3), first_ids(2)}) {
    ReplanRequest request = request_of(job, here, current);
    request.measured = measured(request.workers);
    for (const bool is_urgent : {false, true}) {
      request.is_urgent = is_urgent;
      for (const auto& chosen : {quick_replan(request), replan(request)}) {
        expect_usable(chosen, request);
        EXPECT_EQ(chosen->plan.mode, kSynchronousMode);
        EXPECT_LT(chosen->plan.microbatch_rows, batch) << "no token of the last sub-model";
      }
    }
    EXPECT_EQ(quick_replan(request)->plan.microbatch_rows, job.training.micro_batch_size);
  }
}

TEST(QuickReplan, AlwaysFindsAPlanAfterOneLoss) {
  for (uint32_t count = 2; count <= 6; ++count) {
    JobSpec layout = small_job(4, false);
    layout.parallelism.pipeline_parallel_degree = count;
    const auto current = make_layout_plan(layout, first_ids(count), 1);
    ASSERT_TRUE(current.ok()) << current.status();
    for (uint32_t lost = 1; lost <= count; ++lost) {
      ReplanRequest request =
          request_of(auto_job(), without(first_ids(count), {WorkerId{lost}}), *current);
      request.measured = measured(request.workers);
      expect_usable(quick_replan(request), request);
    }
  }
}

}  // namespace
}  // namespace skein::plans
