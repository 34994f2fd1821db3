#include "plans/coordinator/coordination.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/units.hpp"
#include "plans/profile/estimate.hpp"
#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

TEST(Coordination, AssignsAPlanWhenTheLastExpectedWorkerJoins) {
  Cluster cluster;
  const CoordinatorDecisions first = cluster.join(1);
  EXPECT_NE(find<WelcomeWorker>(first), nullptr);
  EXPECT_EQ(find<AssignPlan>(first), nullptr);
  const CoordinatorDecisions second = cluster.join(2);
  EXPECT_EQ(find<AssignPlan>(second), nullptr) << "not before they have said what they hold";
  EXPECT_NE(find<QuiesceWorker>(second), nullptr);
  EXPECT_TRUE(cluster.quiesced(1).empty());
  const CoordinatorDecisions third = cluster.quiesced(2);
  ASSERT_NE(find<AssignPlan>(third), nullptr);
  EXPECT_EQ(find<AssignPlan>(third)->plan.stages.size(), 2u);
  EXPECT_TRUE(find<AssignPlan>(third)->restore.from_checkpoint);
}

TEST(Coordination, ARepeatedJoinChangesNothing) {
  Cluster cluster;
  cluster.join(1);
  const CoordinatorOutcome again = cluster.coordination.on_join(1, {}, 5);
  EXPECT_EQ(again.why_dropped(), DropReason::kRepeated);
  EXPECT_EQ(cluster.coordination.members().size(), 1u);
}

TEST(Coordination, StartsWhenEveryWorkerIsPrepared) {
  Cluster cluster;
  cluster.gather();
  EXPECT_TRUE(cluster.coordination.on_prepared(WorkerId{1}, 1, 5).decisions().empty());
  EXPECT_TRUE(cluster.coordination.on_prepared(WorkerId{1}, 1, 5).decisions().empty())
      << "a repeat";
  EXPECT_TRUE(cluster.coordination.on_prepared(WorkerId{2}, 7, 5).decisions().empty())
      << "other generation";
  EXPECT_NE(find<StartRun>(cluster.coordination.on_prepared(WorkerId{2}, 1, 5).decisions()),
            nullptr);
}

TEST(Coordination, JournalsBeforeItCommits) {
  Cluster cluster;
  cluster.start();
  EXPECT_TRUE(cluster.ready(0, 0).empty());
  const CoordinatorDecisions decisions = cluster.ready(1, 0);
  ASSERT_NE(find<JournalCommit>(decisions), nullptr);
  EXPECT_EQ(find<BroadcastCommit>(decisions), nullptr);
  EXPECT_DOUBLE_EQ(find<JournalCommit>(decisions)->record.loss, 2);
  EXPECT_DOUBLE_EQ(find<JournalCommit>(decisions)->record.gradient_norm, std::sqrt(8.0));
  EXPECT_NE(find<BroadcastCommit>(cluster.coordination.on_journaled(0, 99).decisions()), nullptr);
}

TEST(Coordination, TimingsAreTakenFromTheWorkerThatHoldsTheReplica) {
  Cluster cluster;
  const auto why = [&](uint32_t worker, uint32_t replica) {
    return cluster.coordination.on_timings(WorkerId{worker}, ReplicaId{replica}).why_dropped();
  };
  EXPECT_EQ(why(1, 0), DropReason::kUnexpected) << "there is no plan yet";
  cluster.gather();
  EXPECT_EQ(why(1, 0), DropReason::kUnexpected) << "nothing has run";
  cluster.prepared(1);
  cluster.prepared(2);
  EXPECT_EQ(why(1, 0), std::nullopt);
  EXPECT_EQ(why(2, 0), DropReason::kNotAllowed);
  EXPECT_EQ(why(1, 7), DropReason::kUnknown);
}

TEST(Coordination, CommitsEachStepOnce) {
  Cluster cluster;
  cluster.start();
  EXPECT_NE(find<BroadcastCommit>(cluster.finish_step(0)), nullptr);
  EXPECT_TRUE(cluster.coordination.on_journaled(0, 99).decisions().empty());
  EXPECT_TRUE(cluster.ready(0, 0).empty()) << "late";
  EXPECT_TRUE(cluster.ready(1, 5).empty()) << "early";
  EXPECT_EQ(cluster.coordination.steps_done(), 1u);
}

TEST(Coordination, JournalsConsecutiveSampleRanges) {
  Cluster cluster;
  cluster.start();
  for (uint64_t step = 0; step < 3; ++step) {
    cluster.ready(0, step);
    const CoordinatorDecisions decisions = cluster.ready(1, step);
    ASSERT_NE(find<JournalCommit>(decisions), nullptr);
    EXPECT_EQ(find<JournalCommit>(decisions)->record.first_sample, 4 * step);
    EXPECT_EQ(find<JournalCommit>(decisions)->record.sample_count, 4u);
    cluster.coordination.on_journaled(step, ++cluster.now);
  }
}

TEST(Coordination, WaitsForReductionsOfReplicasThatNeedGroups) {
  Cluster cluster;
  cluster.start();
  cluster.ready(0, 0);
  ReadyReport report;
  report.replica = ReplicaId{1};
  report.needs_groups = true;
  EXPECT_TRUE(cluster.coordination.on_ready({2}, report, 9).is_accepted());
  EXPECT_NE(
      find<JournalCommit>(cluster.coordination.on_reduced({2}, ReplicaId{1}, 0, 5, 9).decisions()),
      nullptr);
  EXPECT_TRUE(cluster.coordination.on_reduced({2}, ReplicaId{1}, 0, 5, 9).is_dropped());
}

TEST(Coordination, EndsAfterTheLastStep) {
  Cluster cluster;
  cluster.start();
  cluster.finish_step(0);
  cluster.finish_step(1);
  const CoordinatorDecisions decisions = cluster.finish_step(2);
  EXPECT_TRUE(find<BroadcastCommit>(decisions)->order.last);
  ASSERT_NE(find<EndRun>(decisions), nullptr);
  EXPECT_TRUE(find<EndRun>(decisions)->status.ok());
  EXPECT_FALSE(find<EndRun>(decisions)->stopped_early);
}

TEST(Coordination, EndsOnlyWhenTheLastCheckpointAndValidationAreThere) {
  JobSpec job = small_job();
  job.training.steps = 1;
  job.checkpoint.enable = true;
  job.validation.batches = 2;
  Cluster cluster(job);
  cluster.start();
  const CoordinatorDecisions commit = cluster.finish_step(0);
  EXPECT_EQ(find<EndRun>(commit), nullptr);
  EXPECT_TRUE(find<BroadcastCommit>(commit)->order.validate);
  EXPECT_TRUE(find<BroadcastCommit>(commit)->order.checkpoint);
  EXPECT_NE(find<ReportValidation>(
                cluster.coordination.on_validated({2}, ReplicaId{1}, 0, 3.0, 2, ++cluster.now)
                    .decisions()),
            nullptr);
  EXPECT_TRUE(cluster.coordination.on_shard_saved({1}, 0, 1, absl::OkStatus(), ++cluster.now)
                  .decisions()
                  .empty());
  EXPECT_TRUE(cluster.coordination.on_shard_saved({1}, 0, 1, absl::OkStatus(), ++cluster.now)
                  .decisions()
                  .empty())
      << "a repeat";
  EXPECT_NE(find<CompleteCheckpoint>(
                cluster.coordination.on_shard_saved({2}, 1, 1, absl::OkStatus(), ++cluster.now)
                    .decisions()),
            nullptr);
  EXPECT_NE(
      find<EndRun>(cluster.coordination.on_checkpoint_completed(1, absl::OkStatus(), ++cluster.now)
                       .decisions()),
      nullptr);
}

TEST(Coordination, AFailedCheckpointStopsNothing) {
  JobSpec job = small_job();
  job.checkpoint.enable = true;
  job.checkpoint.interval = 1;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  const CoordinatorDecisions failed =
      cluster.coordination
          .on_shard_saved({1}, 0, 1, absl::UnavailableError("disk full"), ++cluster.now)
          .decisions();
  ASSERT_NE(find<RunEvent>(failed), nullptr);
  EXPECT_EQ(find<RunEvent>(failed)->name, "checkpoint.failed");
  EXPECT_EQ(find<EndRun>(failed), nullptr);
  const CoordinatorDecisions late =
      cluster.coordination.on_shard_saved({2}, 1, 1, absl::OkStatus(), ++cluster.now).decisions();
  ASSERT_EQ(late.size(), 1u) << "of a checkpoint that will not be complete";
  EXPECT_NE(find<DeletePartials>(late), nullptr);
  EXPECT_NE(find<BroadcastCommit>(cluster.finish_step(1)), nullptr);
  cluster.coordination.on_shard_saved({1}, 0, 2, absl::OkStatus(), ++cluster.now);
  EXPECT_NE(find<CompleteCheckpoint>(
                cluster.coordination.on_shard_saved({2}, 1, 2, absl::OkStatus(), ++cluster.now)
                    .decisions()),
            nullptr);
}

TEST(Coordination, AFailedLastCheckpointEndsTheRunWithItsReason) {
  JobSpec job = small_job();
  job.training.steps = 1;
  job.checkpoint.enable = true;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  const CoordinatorDecisions decisions =
      cluster.coordination
          .on_checkpoint_completed(1, absl::ResourceExhaustedError("disk full"), ++cluster.now)
          .decisions();
  ASSERT_NE(find<EndRun>(decisions), nullptr);
  EXPECT_EQ(find<EndRun>(decisions)->status.message(), "disk full");
}

TEST(Coordination, AStopRequestEndsAtTheNextStepWithACheckpoint) {
  JobSpec job = small_job();
  job.checkpoint.enable = true;
  Cluster cluster(job);
  cluster.start();
  cluster.coordination.on_stop_request("interrupted", cluster.now);
  EXPECT_TRUE(cluster.coordination.on_stop_request("interrupted", cluster.now).decisions().empty())
      << "a repeat";
  const CoordinatorDecisions decisions = cluster.finish_step(0);
  EXPECT_TRUE(find<BroadcastCommit>(decisions)->order.last);
  EXPECT_TRUE(find<BroadcastCommit>(decisions)->order.checkpoint);
  cluster.coordination.on_shard_saved({1}, 0, 1, absl::OkStatus(), 9);
  cluster.coordination.on_shard_saved({2}, 1, 1, absl::OkStatus(), 9);
  const CoordinatorDecisions end =
      cluster.coordination.on_checkpoint_completed(1, absl::OkStatus(), ++cluster.now).decisions();
  ASSERT_NE(find<EndRun>(end), nullptr);
  EXPECT_TRUE(find<EndRun>(end)->stopped_early);
}

TEST(Coordination, AStopRequestBeforeTrainingEndsAtOnce) {
  Cluster cluster;
  cluster.join(1);
  EXPECT_NE(
      find<EndRun>(cluster.coordination.on_stop_request("interrupted", cluster.now).decisions()),
      nullptr);
}

TEST(Coordination, TellsOnceWhatAWorkerComputesOnIfItIsNotWhatItAskedFor) {
  Cluster cluster;
  cluster.start();
  auto beat = [&](const std::string& device) {
    WorkerActivity activity;
    activity.device = device;
    return cluster.coordination.on_heartbeat(WorkerId{1}, activity, 0).decisions();
  };
  EXPECT_TRUE(beat("").empty()) << "it has none yet";
  const std::string asked = cluster.coordination.members().at(WorkerId{1}).request.device;
  EXPECT_TRUE(beat(asked).empty());
  const CoordinatorDecisions told = beat("cuda:1 a GPU");
  ASSERT_NE(find<RunEvent>(told), nullptr);
  EXPECT_EQ(find<RunEvent>(told)->text, "w1 computes on cuda:1 a GPU");
  EXPECT_TRUE(beat("cuda:1 a GPU").empty());
  EXPECT_TRUE(beat("").empty()) << "an older message says nothing";
  EXPECT_EQ(cluster.coordination.members().at(WorkerId{1}).activity.device, "cuda:1 a GPU");
}

TEST(Coordination, BadInputEndsARunThatCannotBeginWithoutTheOneWhoseItIs) {
  JobSpec job = small_job();
  job.elastic.min_workers = 2;
  Cluster cluster(job);
  cluster.start();
  cluster.coordination.on_worker_lost(WorkerId{2}, absl::DataLossError("no such file"), 9);
  const CoordinatorDecisions decisions = cluster.quiesced(1);
  ASSERT_NE(find<EndRun>(decisions), nullptr);
  EXPECT_TRUE(absl::IsDataLoss(find<EndRun>(decisions)->status));
  EXPECT_THAT(std::string(find<EndRun>(decisions)->status.message()),
              testing::AllOf(HasSubstr("w2"), HasSubstr("stage 1"), HasSubstr("step 1")));
  EXPECT_TRUE(cluster.lose(2).empty());
}

TEST(Coordination, ASilentWorkerIsLostPastItsLease) {
  Cluster cluster;
  cluster.start();
  const uint64_t lease_us = 10'000'000;
  cluster.coordination.on_heartbeat(WorkerId{1}, {}, lease_us);
  EXPECT_TRUE(cluster.coordination.on_timer(lease_us).empty());
  const CoordinatorDecisions decisions = cluster.coordination.on_timer(lease_us + 100);
  ASSERT_NE(find<DismissWorker>(decisions), nullptr);
  EXPECT_EQ(find<DismissWorker>(decisions)->worker, WorkerId{2});
  ASSERT_NE(find<QuiesceWorker>(decisions), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(decisions)->worker, WorkerId{1});
  EXPECT_EQ(find<EndRun>(decisions), nullptr);
}

TEST(Coordination, TooFewWorkersEndTheRunWithTheNumbers) {
  JobSpec job = small_job();
  job.comm.init_timeout_seconds = 5;
  job.elastic.heartbeat_timeout_seconds = 100;
  Cluster cluster(job);
  cluster.join(1);
  const CoordinatorDecisions decisions = cluster.coordination.on_timer(6'000'000);
  ASSERT_NE(find<EndRun>(decisions), nullptr);
  EXPECT_THAT(std::string(find<EndRun>(decisions)->status.message()),
              HasSubstr("1 of 2 workers joined"));
}

/// More of them would be lost in the same way.
TEST(Coordination, WhereWorkersWereLostBeforeTheFirstPlanTheEndSaysWhy) {
  JobSpec job = small_job();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  job.comm.init_timeout_seconds = 5;
  Cluster cluster(job);
  for (const uint32_t worker : {1, 2}) cluster.join(worker);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kProfiling);
  for (const uint32_t worker : {1, 2}) {
    cluster.coordination.on_worker_lost({worker}, absl::AbortedError("no memory to measure"),
                                        ++cluster.now);
  }
  const CoordinatorDecisions ended = cluster.coordination.on_timer(6'000'000);
  ASSERT_NE(find<EndRun>(ended), nullptr);
  EXPECT_THAT(std::string(find<EndRun>(ended)->status.message()),
              testing::AllOf(
                  testing::StartsWith("0 of 2 workers are here after 5 s"),
                  HasSubstr("; the last one that was lost: w2 "),
                  HasSubstr(": no memory to measure; put that right, or ask for fewer workers")));
}

TEST(Coordination, AStalledStepIsTriedAgainAndThenNamesWhoIsMissing) {
  JobSpec job = small_job();
  job.comm.train_timeout_seconds = 5;
  job.elastic.heartbeat_timeout_seconds = 1000;
  Cluster cluster(job);
  cluster.start();
  cluster.ready(0, 0);
  cluster.coordination.on_heartbeat({2}, {0, "F0", 3'000'000, true}, ++cluster.now);
  cluster.now = 3'000'000;
  EXPECT_EQ(find<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), nullptr)
      << "somebody works";
  cluster.coordination.on_heartbeat({2}, {}, ++cluster.now);
  const CoordinatorDecisions again = cluster.coordination.on_timer(++cluster.now);
  ASSERT_NE(find<QuiesceWorker>(again), nullptr);
  EXPECT_THAT(find<RunEvent>(again)->text, HasSubstr("waiting for stage 1 on w2"));
  for (uint32_t n : {1, 2}) cluster.quiesced(n);
  for (uint32_t n : {1, 2}) cluster.prepared(n);
  cluster.ready(0, 0);
  const CoordinatorDecisions decisions = cluster.coordination.on_timer(60'000'000);
  ASSERT_NE(find<EndRun>(decisions), nullptr);
  EXPECT_THAT(std::string(find<EndRun>(decisions)->status.message()),
              HasSubstr("waiting for stage 1 on w2"));
}

/// What two workers of generation 4 are told by a coordinator that was started again after step 2.
QuiesceWorker told_by_successor(std::optional<double> norm) {
  Coordination::Options options;
  options.job = small_job();
  options.worker_count = 2;
  options.committed_steps = 2;
  options.committed_norm = norm;
  options.durable_step = 2;
  options.generation = 4;
  options.generations = {{0, 4}};
  Coordination coordination(std::move(options), 0);
  CoordinatorDecisions decisions;
  for (uint32_t worker : {1u, 2u}) {
    decisions = coordination
                    .on_join(worker,
                             {"host", 100, absl::StrCat("127.0.0.1:", worker), "cpu x1", 1.0,
                              WorkerId{worker}, 4},
                             worker)
                    .decisions();
  }
  const auto* quiesce = find<QuiesceWorker>(decisions);
  EXPECT_NE(quiesce, nullptr);
  return quiesce ? *quiesce : QuiesceWorker{};
}

TEST(Coordination, ASuccessorTellsWorkersTheCommitThatNobodyHasHeardOf) {
  const QuiesceWorker told = told_by_successor(1.5);
  EXPECT_EQ(told.committed_steps, 2u);
  EXPECT_EQ(told.gradient_norm, 1.5) << "who waits for the commit clips by it";
  EXPECT_EQ(told.committed_generation, 4u);
}

/// A power cut has taken it from the journal, and the checkpoint behind it is there.
TEST(Coordination, ACommitWhoseNormIsLostIsToldAsNobodysOwn) {
  const QuiesceWorker told = told_by_successor(std::nullopt);
  EXPECT_EQ(told.committed_steps, 2u);
  EXPECT_EQ(told.committed_generation, 0u);
}

TEST(Coordination, WhoJoinsWhileOthersMeasureIsAnsweredByThem) {
  JobSpec job = small_job();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  Cluster cluster(std::move(job), 1);
  cluster.join(1);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kProfiling);
  std::set<WorkerId> told;
  for (const CoordinatorDecision& decision : cluster.join(2)) {
    if (const auto* request = std::get_if<RequestProfile>(&decision)) told.insert(request->worker);
  }
  EXPECT_EQ(told.size(), 2u) << "the one that measures, too, is to answer";
}

TEST(Coordination, NobodyWaitsForTheMeasurementOfWhoHasFailed) {
  JobSpec job = small_job();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  Cluster cluster(job, 1);
  cluster.join(1);
  cluster.join(2);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kProfiling);
  MeasuredWorker measured;
  measured.profile = estimate_profile(job.model, job.training.seq_len, rows_to_measure(job),
                                      job.optimizer, 1e9, 1e9);
  cluster.coordination.on_profiled(WorkerId{1}, measured, ++cluster.now);
  const absl::Status why = absl::ResourceExhaustedError("no memory to measure");
  const auto failed = cluster.coordination.on_worker_failed(WorkerId{2}, why, ++cluster.now);
  EXPECT_EQ(find<RequestProfile>(failed.decisions()), nullptr) << "it would fail again";
  cluster.now += kSecondUs;
  for (const CoordinatorDecision& each : cluster.coordination.on_timer(cluster.now)) {
    const auto* request = std::get_if<RequestProfile>(&each);
    EXPECT_TRUE(request == nullptr || request->rows.empty());
  }
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kQuiescing);
}

TEST(Coordination, WhoLackedMemoryIsCountedOnAgainWhenAnotherOneJoins) {
  for (const bool lacks_memory : {true, false}) {
    JobSpec job = small_job();
    job.parallelism.pipeline_parallel_degree = 0;
    Cluster cluster(job, 2);
    cluster.start();
    const absl::Status why =
        lacks_memory ? absl::AbortedError("no memory") : absl::DataLossError("a bad token");
    cluster.coordination.on_worker_failed(WorkerId{2}, why, ++cluster.now);
    EXPECT_TRUE(cluster.coordination.members().at({2}).has_failed);
    cluster.join(3);
    EXPECT_EQ(cluster.coordination.members().at({2}).has_failed, !lacks_memory);
    EXPECT_EQ(cluster.coordination.members().at({2}).leaves, !lacks_memory);
  }
}

TEST(Coordination, TheSpeedOfALateWorkerIsTold) {
  JobSpec job = small_job();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  const auto measured = [&job](double flops_per_second) {
    MeasuredWorker worker;
    worker.profile = estimate_profile(job.model, job.training.seq_len, rows_to_measure(job),
                                      job.optimizer, flops_per_second, flops_per_second);
    return worker;
  };
  Cluster cluster(job, 1);
  cluster.join(1);
  cluster.coordination.on_profiled(WorkerId{1}, measured(1e9), ++cluster.now);
  cluster.quiesced(1);
  cluster.prepared(1);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kTraining);
  cluster.join(2);
  const CoordinatorDecisions decisions =
      cluster.coordination.on_profiled(WorkerId{2}, measured(0.5e9), ++cluster.now).decisions();
  const auto* event = find<RunEvent>(decisions);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->name, "worker.measured");
  EXPECT_EQ(event->fields.at("worker"), "2");
  EXPECT_EQ(event->fields.at("speed"), "0.5");
}

TEST(Coordination, ASuccessorWaitsForAsManyWorkersAsThePlanHad) {
  Cluster before;
  before.start();
  Coordination::Options options;
  options.job = small_job();
  options.worker_count = 1;
  options.generation = 1;
  options.last_plan = before.coordination.plan();
  Coordination after(std::move(options), 0);
  const JoinRequest request = {"host", 100, "127.0.0.1:1", "cpu x1", 1.0, WorkerId{1}, 1};
  after.on_join(1, request, 1);
  EXPECT_EQ(after.phase(), Coordination::Phase::kGathering);
  after.on_timer(5'000'000);
  EXPECT_EQ(after.phase(), Coordination::Phase::kQuiescing) << "but not for ever";
}

TEST(Coordination, ADivergedStepIsNotApplied) {
  for (const bool is_exact : {false, true}) {
    JobSpec job = small_job();
    job.tokens.reproducible = is_exact;  // A gradient may have been too large for that.
    Cluster cluster(job);
    cluster.start();
    cluster.ready(0, 0);
    const CoordinatorDecisions decisions =
        cluster.ready(1, 0, std::numeric_limits<double>::quiet_NaN());
    EXPECT_EQ(find<JournalCommit>(decisions), nullptr);
    ASSERT_NE(find<EndRun>(decisions), nullptr);
    EXPECT_THAT(std::string(find<EndRun>(decisions)->status.message()),
                HasSubstr(is_exact ? "tokens.reproducible" : "diverged"));
  }
}

}  // namespace
}  // namespace skein::plans
