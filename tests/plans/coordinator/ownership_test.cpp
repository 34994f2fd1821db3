// What the coordination makes of members that say what is not theirs to say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

const absl::Status kNoData = absl::NotFoundError("no such file");

JobSpec job_of_hundred() {
  JobSpec job = small_job();
  job.training.steps = 100;
  return job;
}

JoinRequest stranger(uint32_t previous, uint64_t generation) {
  return {"far", 666 + previous, "127.0.0.1:6", "cpu x1", 1.0, WorkerId{previous}, generation};
}

/// Two workers train, and a third one has nothing to do.
struct IdleMember : Cluster {
  explicit IdleMember(JobSpec job = job_of_hundred()) : Cluster(std::move(job)) {
    start();
    decided(coordination.on_join(3, stranger(0, 0), ++now));
  }
  CoordinatorDecisions blame(uint32_t worker) {
    return decided(coordination.on_worker_lost(WorkerId{worker}, kNoData, ++now));
  }
};

TEST(Ownership, BadInputOfAMemberWithoutAPartCostsItsMembershipAndNoMore) {
  IdleMember cluster;
  for (PeerNumber peer = 4; peer < 8; ++peer) {
    const CoordinatorDecisions decisions = cluster.blame(static_cast<uint32_t>(peer - 1));
    EXPECT_NE(find<DismissWorker>(decisions), nullptr);
    EXPECT_EQ(find<EndRun>(decisions), nullptr);
    EXPECT_EQ(find<QuiesceWorker>(decisions), nullptr);
    cluster.coordination.on_join(peer, stranger(0, 0), ++cluster.now);
  }
  EXPECT_NE(find<BroadcastCommit>(cluster.finish_step(0)), nullptr);
}

TEST(Ownership, WhatIsToldOfAMemberWithoutAPartAnybodyMayCause) {
  IdleMember cluster;
  JoinRequest other = stranger(0, 0);
  other.data_address = "127.0.0.1:7";
  const CoordinatorDecisions joined =
      cluster.decided(cluster.coordination.on_join(4, other, ++cluster.now));
  const CoordinatorDecisions leaving =
      cluster.decided(cluster.coordination.on_leave(WorkerId{4}, "it says so", ++cluster.now));
  const absl::Status gone = absl::UnavailableError("gone");
  const CoordinatorDecisions lost =
      cluster.decided(cluster.coordination.on_worker_lost(WorkerId{3}, gone, ++cluster.now));
  for (const CoordinatorDecisions& decisions : {joined, leaving, lost}) {
    EXPECT_NE(find<RunEvent>(decisions), nullptr);
    for (const CoordinatorDecision& each : decisions) {
      const auto* event = std::get_if<RunEvent>(&each);
      EXPECT_TRUE(event == nullptr || event->anybody_may_cause) << event->name;
    }
  }
  const CoordinatorDecisions real =
      cluster.decided(cluster.coordination.on_worker_lost(WorkerId{1}, gone, ++cluster.now));
  ASSERT_NE(find<RunEvent>(real), nullptr);
  EXPECT_EQ(find<RunEvent>(real)->name, "worker.lost");
  EXPECT_FALSE(find<RunEvent>(real)->anybody_may_cause);
}

TEST(Ownership, BadInputOfNewcomersThatAreToMeasureEndsNoRunThatTrains) {
  JobSpec job = job_of_hundred();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  Cluster cluster(job, 1);
  cluster.join(1);
  MeasuredWorker measured;
  measured.profile = estimate_profile(job.model, job.training.seq_len, rows_to_measure(job),
                                      job.optimizer, 1e9, 1e9);
  cluster.coordination.on_profiled(WorkerId{1}, measured, ++cluster.now);
  cluster.quiesced(1);
  cluster.prepared(1);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kTraining);
  for (uint32_t newcomer = 2; newcomer < 5; ++newcomer) {
    const CoordinatorDecisions asked =
        cluster.decided(cluster.coordination.on_join(newcomer, stranger(0, 0), ++cluster.now));
    ASSERT_NE(find<RequestProfile>(asked), nullptr);
    const CoordinatorDecisions blamed = cluster.decided(
        cluster.coordination.on_worker_lost(WorkerId{newcomer}, kNoData, ++cluster.now));
    EXPECT_EQ(find<EndRun>(blamed), nullptr);
  }
}

TEST(Ownership, BadInputOfThoseThatMeasureFirstEndsTheRunWhenNobodyIsLeft) {
  JobSpec job = job_of_hundred();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  Cluster cluster(job, 3);
  for (uint32_t worker = 1; worker <= 3; ++worker) cluster.join(worker);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kProfiling);
  for (uint32_t worker = 3; worker >= 1; --worker) {
    const CoordinatorDecisions blamed = cluster.decided(
        cluster.coordination.on_worker_lost(WorkerId{worker}, kNoData, ++cluster.now));
    EXPECT_EQ(find<EndRun>(blamed) != nullptr, worker == 1);
  }
}

TEST(Ownership, BadInputEndsNoRunWhoseOtherWorkersAreAwayForAMoment) {
  IdleMember cluster;
  cluster.coordination.on_own_pause(12'000'000, cluster.now);  // A lease is ten seconds.
  cluster.closed_are_dead = false;
  for (uint32_t worker : {1u, 3u}) {
    cluster.decided(cluster.coordination.on_worker_lost(
        WorkerId{worker}, absl::UnavailableError("the peer closed the connection"), ++cluster.now));
  }
  EXPECT_EQ(find<EndRun>(cluster.blame(2)), nullptr);
}

TEST(Ownership, BadInputOfOneWorkerEvictsItAndOfASecondOneEndsTheRun) {
  IdleMember cluster;
  const CoordinatorDecisions evicted = cluster.blame(2);
  EXPECT_EQ(find<EndRun>(evicted), nullptr);
  ASSERT_NE(find<QuiesceWorker>(evicted), nullptr);
  const CoordinatorDecisions ended = cluster.blame(1);
  ASSERT_NE(find<EndRun>(ended), nullptr);
  EXPECT_TRUE(absl::IsNotFound(find<EndRun>(ended)->status));
  EXPECT_THAT(std::string(find<EndRun>(ended)->status.message()), HasSubstr("w1"));
  EXPECT_THAT(std::string(find<EndRun>(ended)->status.message()), HasSubstr("no such file"));
}

TEST(Ownership, ACommitOfTheOthersShowsThatTheInputWasGood) {
  IdleMember cluster;
  cluster.blame(2);
  cluster.quiesced(1);
  cluster.quiesced(3);
  cluster.prepared(1);
  cluster.prepared(3);
  EXPECT_NE(find<BroadcastCommit>(cluster.finish_step(0)), nullptr);
  EXPECT_EQ(find<EndRun>(cluster.blame(3)), nullptr) << "its own fault as well";
}

TEST(Ownership, BadInputOfTheOnlyWorkerEndsARunOfOthersOnlyIfItHasTrainedWell) {
  JobSpec job = job_of_hundred();
  job.parallelism.pipeline_parallel_degree = 1;
  job.checkpoint.enable = true;
  job.checkpoint.interval = 1;
  for (bool has_trained : {false, true}) {
    Cluster cluster(job, 1);
    cluster.join(1);
    cluster.quiesced(1);
    cluster.prepared(1);
    cluster.ready(0, 0);
    ASSERT_NE(find<BroadcastCommit>(cluster.decided(cluster.coordination.on_journaled(0, 9))),
              nullptr);
    cluster.coordination.on_shard_saved({1}, 0, 1, {}, ++cluster.now);
    cluster.coordination.on_checkpoint_completed(1, {}, ++cluster.now);
    cluster.lose(1);
    cluster.decided(cluster.coordination.on_join(2, stranger(0, 0), ++cluster.now));
    cluster.now += 2'000'000;  // More might have come.
    cluster.answered(cluster.coordination.on_timer(cluster.now));
    cluster.quiesced(2);
    cluster.prepared(2);
    ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kTraining);
    if (has_trained) {
      const uint64_t step = cluster.coordination.steps_done();
      cluster.ready(0, step);
      cluster.decided(cluster.coordination.on_journaled(step, ++cluster.now));
    }
    const CoordinatorDecisions blamed =
        cluster.decided(cluster.coordination.on_worker_lost(WorkerId{2}, kNoData, ++cluster.now));
    EXPECT_EQ(find<EndRun>(blamed) != nullptr, has_trained);
  }
}

TEST(Ownership, BeforeTheFirstCommitWhoCannotStartKnowsLessThanWhoCould) {
  JobSpec job = job_of_hundred();
  job.parallelism.pipeline_parallel_degree = 1;
  for (bool has_started : {false, true}) {
    Cluster cluster(job, 1);
    cluster.join(1);
    cluster.quiesced(1);
    cluster.prepared(1);
    ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kTraining);
    cluster.lose(1);
    cluster.decided(cluster.coordination.on_join(2, stranger(0, 0), ++cluster.now));
    cluster.now += 2'000'000;  // More might have come.
    cluster.answered(cluster.coordination.on_timer(cluster.now));
    cluster.quiesced(2);
    if (has_started) cluster.prepared(2);
    const CoordinatorDecisions blamed =
        cluster.decided(cluster.coordination.on_worker_lost(WorkerId{2}, kNoData, ++cluster.now));
    EXPECT_EQ(find<EndRun>(blamed) != nullptr, has_started);
  }
}

TEST(Ownership, BadInputOfTheLastWorkerEndsTheRun) {
  JobSpec job = job_of_hundred();
  job.parallelism.pipeline_parallel_degree = 1;
  Cluster cluster(job, 1);
  cluster.join(1);
  cluster.quiesced(1);
  const CoordinatorDecisions ended =
      cluster.coordination.on_worker_lost({1}, kNoData, ++cluster.now).decisions();
  ASSERT_NE(find<EndRun>(ended), nullptr);
  EXPECT_TRUE(absl::IsNotFound(find<EndRun>(ended)->status));
}

/// Without one of two workers it does not go on; its first checkpoint comes late.
JobSpec job_that_needs_both() {
  JobSpec job = job_of_hundred();
  job.checkpoint.enable = true;
  job.checkpoint.interval = 50;
  job.elastic.min_workers = 2;
  return job;
}

TEST(Ownership, ARunThatBlamesItsInputLosesNoCommittedStep) {
  const JobSpec job = job_that_needs_both();
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  cluster.decided(cluster.coordination.on_worker_lost({2}, kNoData, ++cluster.now));
  cluster.quiesced(1);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  cluster.now += static_cast<uint64_t>(job.comm.init_timeout_seconds * 1e6) + 1;
  cluster.coordination.on_heartbeat({1}, {}, cluster.now);
  const CoordinatorDecisions ended = cluster.coordination.on_timer(cluster.now);
  ASSERT_NE(find<EndRun>(ended), nullptr);
  EXPECT_TRUE(absl::IsNotFound(find<EndRun>(ended)->status));
  EXPECT_TRUE(find<StopWorkers>(ended)->keeps_state) << "w1 holds a step that is not on disk";
}

TEST(Ownership, AStoppedRunWithoutEnoughWorkersLosesNoCommittedStep) {
  Cluster cluster(job_that_needs_both());
  cluster.start();
  cluster.finish_step(0);
  cluster.decided(cluster.coordination.on_stop_request("a signal", ++cluster.now));
  cluster.decided(cluster.coordination.on_worker_lost({2}, kNoData, ++cluster.now));
  const CoordinatorDecisions ended = cluster.quiesced(1);
  ASSERT_NE(find<EndRun>(ended), nullptr);
  EXPECT_TRUE(find<StopWorkers>(ended)->keeps_state) << "w1 holds a step that is not on disk";
}

TEST(Ownership, AGenerationThatNobodyCanHaveSeenIsRefusedAndMovesNothing) {
  IdleMember cluster;
  for (const uint64_t generation : {uint64_t{1} << 47, std::numeric_limits<uint64_t>::max()}) {
    const CoordinatorDecisions decisions =
        cluster.decided(cluster.coordination.on_join(9, stranger(0, generation), ++cluster.now));
    ASSERT_NE(find<RefusePeer>(decisions), nullptr);
    EXPECT_THAT(find<RefusePeer>(decisions)->reason, HasSubstr("none of this run"));
  }
  const CoordinatorDecisions lost = cluster.lose(2);
  EXPECT_EQ(find<QuiesceWorker>(lost)->generation, 2u);
}

TEST(Ownership, ANumberThatWasNeverGivenIsNotTaken) {
  IdleMember cluster;
  for (const uint32_t previous : {4u, kWorkerIdMax, std::numeric_limits<uint32_t>::max()}) {
    const CoordinatorDecisions decisions = cluster.decided(
        cluster.coordination.on_join(100 + previous, stranger(previous, 0), ++cluster.now));
    EXPECT_LT(find<WelcomeWorker>(decisions)->worker.value, 8u) << previous;
  }
  EXPECT_EQ(cluster.coordination.members().size(), 6u);
}

TEST(Ownership, TheNumberOfALiveMemberIsNotTaken) {
  IdleMember cluster;
  const CoordinatorDecisions decisions =
      cluster.decided(cluster.coordination.on_join(9, stranger(2, 1), ++cluster.now));
  EXPECT_EQ(find<WelcomeWorker>(decisions)->worker, WorkerId{4});
  EXPECT_EQ(find<DismissWorker>(decisions), nullptr);
  EXPECT_EQ(cluster.coordination.members().at({2}).request.process_id, 100u);
}

TEST(Ownership, ReportsOfAMemberWithoutAPartAreNotAllowed) {
  JobSpec job = job_of_hundred();
  job.validation.batches = 1;
  job.validation.interval = 1;
  job.checkpoint.enable = true;
  job.checkpoint.interval = 1;
  job.elastic.snapshot_interval = 1;
  IdleMember cluster(job);
  Coordination& to = cluster.coordination;
  ReadyReport diverged;
  diverged.loss_sum = diverged.norm_squared = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(to.on_ready({3}, diverged, ++cluster.now).why_dropped(), DropReason::kNotAllowed);
  EXPECT_EQ(to.on_reduced({3}, {0}, 0, 1, ++cluster.now).why_dropped(), DropReason::kNotAllowed);
  EXPECT_TRUE(to.on_early_signal({3}, {0}, 0, ++cluster.now).is_dropped());
  EXPECT_EQ(to.on_peer_failure({3}, {1}, "it lies", ++cluster.now).why_dropped(),
            DropReason::kNotAllowed);
  EXPECT_EQ(to.on_peer_failure({1}, {3}, "no neighbour", ++cluster.now).why_dropped(),
            DropReason::kNotAllowed);
  cluster.finish_step(0);
  for (const absl::Status& status : {absl::OkStatus(), absl::UnavailableError("it lies")}) {
    for (int32_t stage : {0, 1}) {
      EXPECT_EQ(to.on_shard_saved({3}, stage, 1, status, ++cluster.now).why_dropped(),
                DropReason::kNotAllowed);
    }
    EXPECT_EQ(to.on_shard_saved({1}, 1, 1, status, ++cluster.now).why_dropped(),
              DropReason::kNotAllowed)
        << "not its own stage";
  }
  EXPECT_EQ(to.on_shard_sent({3}, 0, 1, ++cluster.now).why_dropped(), DropReason::kNotAllowed);
  EXPECT_EQ(to.on_shard_sent({1}, 1, 1, ++cluster.now).why_dropped(), DropReason::kNotAllowed);
  EXPECT_EQ(to.on_shard_sent({1}, 7, 1, ++cluster.now).why_dropped(), DropReason::kUnknown);
  EXPECT_EQ(to.on_shard_sent({1}, 0, 2, ++cluster.now).why_dropped(), DropReason::kUnexpected);
  EXPECT_EQ(to.on_validated({3}, {1}, 0, 3, 2, ++cluster.now).why_dropped(),
            DropReason::kNotAllowed);
  EXPECT_EQ(to.on_validated({1}, {0}, 0, 3, 2, ++cluster.now).why_dropped(),
            DropReason::kNotAllowed)
      << "not of the last stage";
  EXPECT_EQ(to.on_snapshot_kept({3}, 0, 1).why_dropped(), DropReason::kNotAllowed);
  // What is theirs to say is taken.
  EXPECT_TRUE(to.on_validated({2}, {1}, 0, 3, 2, ++cluster.now).is_accepted());
  EXPECT_TRUE(to.on_snapshot_kept({1}, 0, 1).is_accepted());
  EXPECT_TRUE(to.on_shard_saved({1}, 0, 1, {}, ++cluster.now).is_accepted());
  EXPECT_EQ(
      to.on_shard_saved({1}, 0, 1, absl::UnavailableError("late"), ++cluster.now).why_dropped(),
      DropReason::kRepeated);
  EXPECT_NE(find<CompleteCheckpoint>(to.on_shard_saved({2}, 1, 1, {}, ++cluster.now).decisions()),
            nullptr);
}

TEST(Ownership, StateOfAMemberThatWasNeverGivenAnyIsNotUsed) {
  IdleMember cluster;
  for (uint64_t step = 0; step < 5; ++step) cluster.finish_step(step);
  cluster.lose(2);
  cluster.quiesced(3, {{5, {0, 6}}});
  const CoordinatorDecisions assigned = cluster.quiesced(1, {{5, {0, 3}}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 0u) << "nobody has the other half";
}

TEST(Ownership, ASnapshotWaitsForTheOneBeforeAndIsCounted) {
  JobSpec job = job_of_hundred();
  job.elastic.snapshot_interval = 1;
  Cluster cluster(job);
  cluster.start();
  EXPECT_TRUE(find<BroadcastCommit>(cluster.finish_step(0))->order.snapshot);
  EXPECT_FALSE(find<BroadcastCommit>(cluster.finish_step(1))->order.snapshot);
  EXPECT_FALSE(find<BroadcastCommit>(cluster.finish_step(2))->order.snapshot);
  EXPECT_EQ(cluster.coordination.snapshot_waits(), 2u);
  for (uint32_t worker : {1, 2}) {
    for (int32_t stage : {0, 1}) cluster.coordination.on_snapshot_kept({worker}, stage, 1);
  }
  EXPECT_TRUE(find<BroadcastCommit>(cluster.finish_step(3))->order.snapshot);
  EXPECT_EQ(cluster.coordination.snapshot_waits(), 2u);
}

}  // namespace
}  // namespace skein::plans
