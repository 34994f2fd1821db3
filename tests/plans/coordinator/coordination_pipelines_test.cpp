// What the coordination does with pipeline replicas under local updates.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/modes/pipeline_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<CommitRecord> records(const CoordinatorDecisions& decisions) {
  std::vector<CommitRecord> found;
  for (const auto& each : decisions) {
    if (const auto* journal = std::get_if<JournalCommit>(&each)) found.push_back(journal->record);
  }
  return found;
}

std::vector<BroadcastCommit> commits(const CoordinatorDecisions& decisions) {
  std::vector<BroadcastCommit> found;
  for (const auto& each : decisions) {
    if (const auto* commit = std::get_if<BroadcastCommit>(&each)) found.push_back(*commit);
  }
  return found;
}

TEST(CoordinationPipelines, ARoundIsOneRecordForAllOfItsSteps) {
  PipelineCluster cluster;
  const CoordinatorDecisions all = cluster.run(cluster.begun);
  const std::vector<CommitRecord> journal = records(all);
  ASSERT_EQ(journal.size(), 3u);
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(journal[round].step, 4 * round + 3);
    EXPECT_EQ(journal[round].first_sample, 24 * round);
    EXPECT_EQ(journal[round].sample_count, 24u);
    EXPECT_EQ(journal[round].loss, 2);
    EXPECT_EQ(journal[round].gradient_norm, 3);
    EXPECT_EQ(cluster.coordination.generation_of(4 * round + 4), 1u);
  }
  uint64_t samples = 0;
  for (const BroadcastCommit& commit : commits(all)) {
    for (uint64_t each : commit.pipeline_samples) samples += each;
  }
  EXPECT_EQ(samples, 72u);
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kEnded);
  EXPECT_TRUE(find<EndRun>(all)->status.ok());
}

TEST(CoordinationPipelines, ARoundEndsWhereValidationOrACheckpointIsDue) {
  JobSpec job = rounds_of_four();
  job.validation.batches = 1;
  job.validation.interval = 3;
  job.checkpoint.enable = true;
  job.checkpoint.interval = 5;
  PipelineCluster cluster(job);
  std::vector<std::string> ends;
  for (const BroadcastCommit& each : commits(cluster.run(cluster.begun))) {
    ends.push_back(std::to_string(each.order.step + 1) + (each.order.validate ? "v" : "") +
                   (each.order.checkpoint ? "c" : ""));
  }
  EXPECT_THAT(ends, ElementsAre("3v", "4", "5c", "6v", "8", "9v", "10c", "12vc"));
}

TEST(CoordinationPipelines, ASnapshotIsOrderedAtTheStartAndBehindEveryRoundButTheLast) {
  PipelineCluster cluster;
  ASSERT_NE(find<StartRun>(cluster.begun), nullptr);
  EXPECT_TRUE(find<StartRun>(cluster.begun)->order.snapshot);
  std::vector<bool> snapshots;
  for (const auto& each : commits(cluster.run(cluster.begun))) {
    snapshots.push_back(each.order.snapshot);
  }
  EXPECT_THAT(snapshots, ElementsAre(true, true, false));
}

TEST(CoordinationPipelines, ALossInARoundQuiescesNobodyBeforeItsEnd) {
  for (size_t until : {0, 1, 2, 5, 8}) {
    PipelineCluster cluster;
    const CoordinatorDecisions before = cluster.run(cluster.begun, until);
    cluster.dead.insert(1);
    const CoordinatorDecisions lost = cluster.lose(2);
    EXPECT_EQ(count<QuiesceWorker>(lost), 0u) << until;
    // Whatever was not carried out before is now.
    CoordinatorDecisions rest = cluster.run(lost);
    for (uint64_t step = 0; step < 20 && count<QuiesceWorker>(rest) == 0; ++step) {
      for (uint32_t pipeline : {0u, 2u}) {
        append(rest, cluster.run(cluster.ready_pipeline(pipeline, step)));
      }
    }
    ASSERT_EQ(records(rest).size(), 1u) << until;
    EXPECT_EQ(records(rest)[0].first_sample, 0u);
    EXPECT_LT(records(rest)[0].step, 4u) << "cut short";
    EXPECT_EQ(records(rest)[0].sample_count, 6 * (records(rest)[0].step + 1));
    EXPECT_TRUE(commits(rest)[0].order.last) << "of this plan";
    EXPECT_EQ(count<QuiesceWorker>(rest), 2u);
    const uint64_t done = cluster.coordination.steps_done();
    const CoordinatorDecisions assigned = cluster.all_quiesced(3, {{done, kAll}});
    ASSERT_NE(find<AssignPlan>(assigned), nullptr);
    EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, done);
    EXPECT_EQ(find<AssignPlan>(assigned)->plan.stages[0].replicas.size(), 2u);
  }
}

TEST(CoordinationPipelines, WhoCannotGoOnCostsNoRound) {
  PipelineCluster cluster;
  const CoordinatorDecisions before = cluster.run(cluster.begun, 2);
  cluster.dead.insert(1);
  const CoordinatorDecisions told = cluster.decided(cluster.coordination.on_worker_failed(
      {2}, absl::DataLossError("token 300 is none"), ++cluster.now));
  EXPECT_EQ(find<RunEvent>(told)->name, "worker.failed");
  EXPECT_EQ(count<QuiesceWorker>(told), 0u);
  CoordinatorDecisions rest = cluster.run(told);
  for (uint64_t step = 0; step < 20 && count<QuiesceWorker>(rest) == 0; ++step) {
    for (uint32_t pipeline : {0u, 2u}) {
      append(rest, cluster.run(cluster.ready_pipeline(pipeline, step)));
    }
  }
  ASSERT_EQ(records(rest).size(), 1u);
  EXPECT_EQ(records(rest)[0].sample_count, 6 * (records(rest)[0].step + 1));
  EXPECT_EQ(count<QuiesceWorker>(rest), 3u) << "it is still here";
}

TEST(CoordinationPipelines, ALossWhileTheMeanIsTakenQuiescesAndTheRoundIsDoneAgain) {
  PipelineCluster cluster;
  cluster.holds_journal = true;
  CoordinatorDecisions first = cluster.run(cluster.begun);
  cluster.holds_journal = false;
  cluster.holds_mean = true;
  cluster.run(cluster.coordination.on_journaled(3, ++cluster.now).decisions());
  const CoordinatorDecisions lost = cluster.lose(3);
  EXPECT_EQ(count<QuiesceWorker>(lost), 2u);
  EXPECT_EQ(find<QuiesceWorker>(lost)->committed_steps, 4u);
  const CoordinatorDecisions assigned = cluster.all_quiesced(3, {{4, kAll}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 4u);
  cluster.prepared(1);
  const CoordinatorDecisions started = cluster.prepared(2);
  ASSERT_NE(find<ClaimSamples>(started), nullptr);
  EXPECT_EQ(find<ClaimSamples>(started)->claim, (SampleClaim{24, 2}));
  EXPECT_EQ(find<ClaimSamples>(started)->step, 0u);
  EXPECT_EQ(find<RewindJournal>(started), nullptr);
}

TEST(CoordinationPipelines, WithoutAnyPipelineLeftTheRunWaitsForWorkersAndGoesOn) {
  PipelineCluster cluster;
  cluster.lose(1);
  cluster.lose(2);
  cluster.lose(3);
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  cluster.join(9);
  cluster.now += 1'000'000;
  cluster.coordination.on_timer(cluster.now);
  const CoordinatorDecisions assigned = cluster.quiesced(4);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_TRUE(find<AssignPlan>(assigned)->restore.from_checkpoint);
}

TEST(CoordinationPipelines, ANewcomerCutsTheRoundShortAndIsOneMorePipeline) {
  PipelineCluster cluster;
  cluster.join(4);
  cluster.now += 1'000'000;
  EXPECT_EQ(count<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), 0u);
  const CoordinatorDecisions all = cluster.run(cluster.begun);
  ASSERT_EQ(records(all).size(), 1u);
  EXPECT_EQ(records(all)[0].step, 0u) << "with the samples that were claimed";
  EXPECT_EQ(count<QuiesceWorker>(all), 4u);
  const CoordinatorDecisions assigned = cluster.all_quiesced(4, {{1, kAll}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->plan.stages[0].replicas.size(), 4u);
}

TEST(CoordinationPipelines, AStopEndsTheRunBehindTheStepInProgressWithACheckpoint) {
  JobSpec job = rounds_of_four();
  job.checkpoint.enable = true;
  job.checkpoint.interval = 100;
  PipelineCluster cluster(job);
  const CoordinatorDecisions stopping =
      cluster.coordination.on_stop_request("Ctrl-C", cluster.now).decisions();
  EXPECT_EQ(find<EndRun>(stopping), nullptr);
  const CoordinatorDecisions all = cluster.run(cluster.begun);
  ASSERT_EQ(commits(all).size(), 1u);
  const CommitOrder order = commits(all)[0].order;
  EXPECT_EQ(order.step, 0u);
  EXPECT_TRUE(order.last && order.checkpoint && !order.snapshot);
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kFinishing);
  cluster.coordination.on_shard_saved({1}, 0, 1, absl::OkStatus(), ++cluster.now);
  const CoordinatorDecisions ended =
      cluster.coordination.on_checkpoint_completed(1, absl::OkStatus(), ++cluster.now).decisions();
  ASSERT_NE(find<EndRun>(ended), nullptr);
  EXPECT_TRUE(find<EndRun>(ended)->stopped_early);
}

/// The round is cut short, so a stop waits for an iteration, and not for as long as the last round
/// took.
TEST(CoordinationPipelines, AStopAbandonsALongRoundOnlyIfAStepOfItIsLong) {
  for (const uint64_t seconds : {60, 120}) {
    std::optional<PipelineCluster> cluster;
    for (size_t until = 1; until < 100; ++until) {
      cluster.emplace();
      cluster->step_us.assign(8, seconds / 4 * 1'000'000);
      cluster->now += seconds * 1'000'000;
      if (!commits(cluster->run(cluster->begun, until)).empty()) break;
    }
    ASSERT_EQ(cluster->coordination.steps_done(), 4u);
    cluster->coordination.on_stop_request("Ctrl-C", cluster->now);
    cluster->now += 1'000'000;
    for (uint32_t id : {1, 2, 3}) cluster->coordination.on_heard({id}, cluster->now);
    cluster->coordination.on_timer(cluster->now);
    const bool is_abandoned = cluster->coordination.phase() == Coordination::Phase::kEnded;
    EXPECT_EQ(is_abandoned, seconds == 120) << "steps of " << seconds / 4 << " s";
  }
}

/// What the last commit orders is done by the next plan, as replicas of this one are missing.
TEST(CoordinationPipelines, ALossInTheLastRoundEndsTheRunWithWhatIsDueInTheEnd) {
  JobSpec job = rounds_of_four();
  job.training.steps = 4;
  job.checkpoint.enable = true;
  job.validation.batches = 1;
  PipelineCluster cluster(job);
  cluster.dead.insert(2);
  CoordinatorDecisions all = cluster.run(cluster.begun, 3);
  append(all, cluster.run(cluster.lose(3)));
  for (uint64_t step = 0; step < 20 && cluster.coordination.steps_done() < 4; ++step) {
    for (uint32_t pipeline : {0u, 1u}) {
      append(all, cluster.run(cluster.ready_pipeline(pipeline, step)));
    }
  }
  uint64_t done = cluster.coordination.steps_done();
  ASSERT_GT(done, 0u);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kQuiescing);
  while (cluster.coordination.phase() == Coordination::Phase::kQuiescing) {
    CoordinatorDecisions next = cluster.all_quiesced(3, {{done, kAll}});
    cluster.prepared(1);
    next = cluster.prepared(2);
    const auto* started = find<StartRun>(next);
    ASSERT_NE(started, nullptr);
    if (done == 4) {
      EXPECT_TRUE(started->order.last && started->order.checkpoint && started->order.validate);
      EXPECT_FALSE(started->order.snapshot);
      EXPECT_EQ(find<ClaimSamples>(next), nullptr);
      break;
    }
    cluster.run(next);
    done = cluster.coordination.steps_done();
  }
  EXPECT_EQ(done, 4u);
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kFinishing);
}

/// Returns for how long one that does not quiesce is awaited behind a round of a minute.
uint64_t seconds_to_quiesce(uint64_t iteration_us, uint64_t mean_us) {
  PipelineCluster cluster;
  cluster.step_us.assign(8, iteration_us);
  cluster.holds_mean = cluster.holds_journal = true;
  const CoordinatorDecisions round = cluster.run(cluster.begun);
  cluster.now += mean_us;
  cluster.holds_mean = false;
  for (const CoordinatorDecision& each : round) {
    const auto* average = std::get_if<AverageWeights>(&each);
    if (average != nullptr && average->is_global) cluster.answer(each);
  }
  cluster.now += 60 * kSecondUs;
  cluster.decided(cluster.coordination.on_journaled(3, cluster.now));
  cluster.coordination.on_peer_failure({1}, {}, "its group does not form", cluster.now);
  uint64_t asked_us = 0;
  for (int seconds = 0; seconds < 200; ++seconds) {
    cluster.now += kSecondUs;
    for (uint32_t id : {1, 2, 3}) {
      cluster.decided(cluster.coordination.on_heartbeat({id}, {}, cluster.now));
    }
    const CoordinatorDecisions told = cluster.decided(cluster.coordination.on_timer(cluster.now));
    if (find<DismissWorker>(told) != nullptr) return (cluster.now - asked_us) / kSecondUs;
    if (find<QuiesceWorker>(told) == nullptr) continue;
    asked_us = cluster.now;
    for (uint32_t id : {1, 2}) cluster.quiesced(id, {{4, kAll}});
  }
  return 200;
}

TEST(CoordinationPipelines, WhoseRoundsAreLongHasAsLongToQuiesceAsAnIterationOrTheEndTakes) {
  EXPECT_LT(seconds_to_quiesce(5 * kSecondUs, 0), 20u);
  EXPECT_GE(seconds_to_quiesce(30 * kSecondUs, 0), 30u);
  EXPECT_LT(seconds_to_quiesce(30 * kSecondUs, 0), 40u);
  EXPECT_GE(seconds_to_quiesce(5 * kSecondUs, 40 * kSecondUs), 40u);
  EXPECT_LT(seconds_to_quiesce(5 * kSecondUs, 40 * kSecondUs), 50u);
}

TEST(CoordinationPipelines, WordsOfAnOlderPlanChangeNothing) {
  PipelineCluster cluster;
  cluster.holds_mean = true;
  const CoordinatorDecisions all = cluster.run(cluster.begun);
  const uint64_t number = find<AverageWeights>(all)->number;
  cluster.lose(1);
  const CoordinatorOutcome averaged =
      cluster.coordination.on_averaged({2}, {1}, number, true, ++cluster.now);
  EXPECT_TRUE(averaged.is_dropped());
  ReadyReport late;
  late.replica = {1};
  EXPECT_TRUE(cluster.coordination.on_ready({2}, late, ++cluster.now).is_dropped());
}

TEST(CoordinationPipelines, PeerFailureWithALostNeighbourIsNone) {
  PipelineCluster cluster(pipeline_job(2, 2), 4);
  cluster.lose(1);
  EXPECT_TRUE(cluster.coordination.on_peer_failure({3}, {1}, "its link broke", ++cluster.now)
                  .decisions()
                  .empty());
  cluster.now += 1'000'000;
  EXPECT_EQ(count<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), 0u);
  // With one that is there it is.
  cluster.coordination.on_peer_failure({2}, {4}, "its link broke", ++cluster.now);
  cluster.now += 1'000'000;
  const CoordinatorDecisions quiesces = cluster.coordination.on_timer(cluster.now);
  EXPECT_EQ(count<QuiesceWorker>(quiesces), 3u);
  EXPECT_THAT(find<RunEvent>(quiesces)->text, HasSubstr("its link broke"));
}

TEST(CoordinationPipelines, ALossExplainsOnlyThePeerFailureThatItMade) {
  PipelineCluster cluster(pipeline_job(2, 2), 4);
  cluster.coordination.on_peer_failure({3}, {1}, "its link broke", ++cluster.now);
  cluster.coordination.on_peer_failure({2}, {4}, "the other link broke", ++cluster.now);
  EXPECT_EQ(count<QuiesceWorker>(cluster.lose(1)), 0u);
  cluster.now += 1'000'000;
  const CoordinatorDecisions quiesces = cluster.coordination.on_timer(cluster.now);
  ASSERT_EQ(count<QuiesceWorker>(quiesces), 3u)
      << "the pipeline replica that goes on waits for itself";
  EXPECT_THAT(find<RunEvent>(quiesces)->text, HasSubstr("the other link broke"));
}

TEST(CoordinationPipelines, ALeaverIsLetGoBehindTheRound) {
  PipelineCluster cluster;
  EXPECT_EQ(count<QuiesceWorker>(
                cluster.coordination.on_leave({2}, "SIGTERM", ++cluster.now).decisions()),
            0u);
  const CoordinatorDecisions all = cluster.run(cluster.begun);
  ASSERT_EQ(records(all).size(), 1u);
  EXPECT_EQ(count<QuiesceWorker>(all), 3u);
  const CoordinatorDecisions assigned = cluster.all_quiesced(3, {{1, kAll}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->plan.stages[0].replicas.size(), 2u);
  cluster.prepared(1);
  const CoordinatorDecisions started = cluster.prepared(3);
  ASSERT_NE(find<StopWorker>(started), nullptr);
  EXPECT_EQ(find<StopWorker>(started)->worker, WorkerId{2});
}

}  // namespace
}  // namespace skein::plans
