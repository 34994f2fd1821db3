// What the coordination makes of checkpoints that are late, damaged, or read in vain.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LayerRange kFront{0, 3};  // A model of 4 blocks in two stages.

JobSpec saving_job() {
  JobSpec job = small_job();
  job.training.steps = 100;
  job.checkpoint.enable = true;
  job.checkpoint.interval = 2;
  return job;
}

/// Steps 1 to `steps`; checkpoints up to step `durable` are complete.
void train(Cluster& cluster, uint64_t steps, uint64_t durable) {
  cluster.start();
  for (uint64_t step = 0; step < steps; ++step) {
    cluster.finish_step(step);
    const uint64_t done = step + 1;
    if (done % 2 != 0) continue;
    for (int32_t stage : {0, 1}) {
      cluster.coordination.on_shard_saved(cluster.sender(ReplicaId{static_cast<uint32_t>(stage)}),
                                          stage, done, absl::OkStatus(), ++cluster.now);
    }
    if (done > durable) continue;
    cluster.coordination.on_checkpoint_completed(done, absl::OkStatus(), ++cluster.now);
  }
}

/// Worker 2 is lost, and worker 1 restores from the checkpoint of step 4.
CoordinatorDecisions restore_from_four(Cluster& cluster) {
  train(cluster, 5, 4);
  cluster.lose(2);
  return cluster.quiesced(1, {{5, kFront}});
}

std::vector<std::string> names(const CoordinatorDecisions& decisions) {
  std::vector<std::string> names;
  for (const CoordinatorDecision& decision : decisions) {
    if (const auto* event = std::get_if<RunEvent>(&decision)) names.push_back(event->name);
  }
  return names;
}

TEST(CoordinationCheckpoint, OnASlowDiskTheNextOneWaits) {
  Cluster cluster(saving_job());
  cluster.start();
  std::vector<uint64_t> ordered;
  size_t late = 0;
  const auto finish = [&](uint64_t step) {
    const CoordinatorDecisions decisions = cluster.finish_step(step);
    if (find<BroadcastCommit>(decisions)->order.checkpoint) ordered.push_back(step + 1);
    for (const std::string& name : names(decisions)) late += name == "checkpoint.late" ? 1 : 0;
  };
  for (uint64_t step = 0; step < 9; ++step) finish(step);
  EXPECT_THAT(ordered, ElementsAre(2, 4)) << "their files are being written";
  EXPECT_EQ(late, 1u);
  const auto save = [&](uint64_t steps_done) {
    for (int32_t stage : {0, 1}) {
      cluster.coordination.on_shard_saved(cluster.sender(ReplicaId{static_cast<uint32_t>(stage)}),
                                          stage, steps_done, absl::OkStatus(), ++cluster.now);
    }
  };
  save(2);
  for (uint64_t step = 9; step < 13; ++step) finish(step);
  EXPECT_THAT(ordered, ElementsAre(2, 4, 10)) << "at the first commit that can";
  EXPECT_EQ(late, 2u);
  save(4);
  save(10);
  finish(13);
  save(14);
  for (uint64_t step = 14; step < 19; ++step) finish(step);
  EXPECT_THAT(ordered, ElementsAre(2, 4, 10, 14)) << "none of them is complete";
}

TEST(CoordinationCheckpoint, AStopTakesNoStepBack) {
  Cluster cluster(saving_job());
  ASSERT_NE(find<AssignPlan>(restore_from_four(cluster)), nullptr);
  const CoordinatorDecisions stopped =
      cluster.decided(cluster.coordination.on_stop_request("Ctrl-C", ++cluster.now));
  ASSERT_NE(find<EndRun>(stopped), nullptr) << "who is away may come back to the next life";
  EXPECT_TRUE(find<EndRun>(stopped)->stopped_early);
  EXPECT_EQ(cluster.coordination.steps_done(), 5u);
}

TEST(CoordinationCheckpoint, ARollbackWaitsForANewerCheckpointThatIsBeingCompleted) {
  for (const bool is_written : {true, false}) {
    Cluster cluster(saving_job());
    train(cluster, 5, 2);
    cluster.lose(2);
    const CoordinatorDecisions waiting = cluster.quiesced(1, {{5, kFront}});
    EXPECT_EQ(find<AssignPlan>(waiting), nullptr) << "step 4 is about to be on disk";
    EXPECT_THAT(names(waiting), testing::Contains("checkpoint.awaited"));
    const CoordinatorDecisions assigned =
        cluster.decided(cluster.coordination.on_checkpoint_completed(
            4, is_written ? absl::OkStatus() : absl::UnavailableError("disk full"), ++cluster.now));
    ASSERT_NE(find<AssignPlan>(assigned), nullptr);
    EXPECT_TRUE(find<AssignPlan>(assigned)->restore.from_checkpoint);
    EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, is_written ? 4u : 2u);
  }
}

TEST(CoordinationCheckpoint, AStageThatIsSentIsSavedHere) {
  Cluster cluster(saving_job());
  cluster.start();
  cluster.finish_step(0);
  cluster.finish_step(1);
  Coordination& to = cluster.coordination;
  const CoordinatorDecisions sent = to.on_shard_sent({2}, 1, 2, ++cluster.now).decisions();
  const auto* order = find<ReceiveShard>(sent);
  ASSERT_NE(order, nullptr);
  EXPECT_EQ(order->generation, to.generation());
  EXPECT_EQ(order->sender, WorkerId{2});
  EXPECT_EQ(order->stage, 1);
  EXPECT_EQ(order->stage_count, 2);
  EXPECT_EQ(order->layers, (LayerRange{3, 6}));
  EXPECT_EQ(order->steps_done, 2u);
  EXPECT_THAT(names(sent), ElementsAre("checkpoint.sent"));
  EXPECT_EQ(to.on_shard_sent({2}, 1, 2, ++cluster.now).why_dropped(), DropReason::kRepeated);
  EXPECT_TRUE(to.on_shard_saved({1}, 0, 2, {}, ++cluster.now).is_accepted());
  EXPECT_EQ(to.on_shard_saved({2}, 1, 2, {}, ++cluster.now).why_dropped(), DropReason::kUnexpected)
      << "it is on its way, and would be there twice";
  ReceiveShard stale = *order;
  --stale.generation;
  EXPECT_EQ(to.on_shard_received(stale, {}, ++cluster.now).why_dropped(), DropReason::kStale);
  const CoordinatorOutcome saved = to.on_shard_received(*order, {}, ++cluster.now);
  ASSERT_TRUE(saved.is_accepted());
  EXPECT_NE(find<CompleteCheckpoint>(CoordinatorOutcome(saved).decisions()), nullptr);
  EXPECT_TRUE(to.on_shard_received(*order, {}, ++cluster.now).is_dropped());
  EXPECT_EQ(to.on_shard_sent({2}, 1, 2, ++cluster.now).why_dropped(), DropReason::kRepeated);
}

TEST(CoordinationCheckpoint, AStageOfAFailedCheckpointIsTakenOutOfTheWay) {
  Cluster cluster(saving_job());
  cluster.start();
  for (uint64_t step = 0; step < 2; ++step) cluster.finish_step(step);
  Coordination& to = cluster.coordination;
  EXPECT_EQ(names(to.on_shard_saved({1}, 0, 2, absl::UnavailableError("disk full"), ++cluster.now)
                      .decisions()),
            std::vector<std::string>{"checkpoint.failed"});
  EXPECT_EQ(to.on_shard_sent({2}, 1, 4, ++cluster.now).why_dropped(), DropReason::kUnexpected);
  const CoordinatorDecisions sent = to.on_shard_sent({2}, 1, 2, ++cluster.now).decisions();
  ASSERT_NE(find<ReceiveShard>(sent), nullptr) << "else its worker would wait with the next one";
  EXPECT_TRUE(find<ReceiveShard>(sent)->is_discarded);
  const CoordinatorOutcome received =
      to.on_shard_received(*find<ReceiveShard>(sent), {}, ++cluster.now);
  ASSERT_TRUE(received.is_accepted());
  EXPECT_TRUE(CoordinatorOutcome(received).decisions().empty()) << "it counts for nothing";
  EXPECT_EQ(to.on_shard_sent({2}, 1, 2, ++cluster.now).why_dropped(), DropReason::kUnexpected)
      << "it comes once";
}

/// Its worker has no more than two on their way.
TEST(CoordinationCheckpoint, ShardsOfAFailedCheckpointThatWaitAreDiscardedInTurn) {
  Cluster cluster(saving_job());
  train(cluster, 2, 0);
  for (uint64_t step = 2; step < 4; ++step) cluster.finish_step(step);
  Coordination& to = cluster.coordination;
  EXPECT_TRUE(to.on_shard_sent({1}, 0, 4, ++cluster.now).is_accepted());
  EXPECT_TRUE(to.on_shard_sent({2}, 1, 4, ++cluster.now).is_accepted());
  ReceiveShard first;
  first.generation = to.generation();
  first.sender = {1};
  first.steps_done = 4;
  const CoordinatorDecisions failed =
      to.on_shard_received(first, absl::UnavailableError("disk full"), ++cluster.now).decisions();
  EXPECT_NE(find<DeletePartials>(failed), nullptr);
  const auto* next = find<ReceiveShard>(failed);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->stage, 1);
  ReceiveShard second = *next;
  EXPECT_EQ(to.on_shard_sent({2}, 1, 4, ++cluster.now).is_dropped(), true) << "a repeat";
  EXPECT_TRUE(to.on_shard_received(second, {}, ++cluster.now).is_accepted());
}

TEST(CoordinationCheckpoint, FilesThatComeBehindTheDeletionAreDeletedToo) {
  Cluster cluster(saving_job());
  cluster.start();
  for (uint64_t step = 0; step < 2; ++step) cluster.finish_step(step);
  Coordination& to = cluster.coordination;
  to.on_shard_saved({1}, 0, 2, absl::UnavailableError("disk full"), ++cluster.now);
  const CoordinatorDecisions late = to.on_shard_saved({2}, 1, 2, {}, ++cluster.now).decisions();
  EXPECT_NE(find<DeletePartials>(late), nullptr);
  EXPECT_TRUE(to.on_shard_saved({2}, 1, 2, {}, ++cluster.now).is_dropped());
}

TEST(CoordinationCheckpoint, AStageThatCannotBeSentFailsItsCheckpointAtOnce) {
  for (const bool is_received : {true, false}) {
    Cluster cluster(saving_job());
    cluster.start();
    for (uint64_t step = 0; step < 2; ++step) cluster.finish_step(step);
    Coordination& to = cluster.coordination;
    if (!is_received) {
      EXPECT_TRUE(to.on_shard_sent({1}, 0, 2, ++cluster.now).is_accepted());
    }
    EXPECT_TRUE(to.on_shard_sent({2}, 1, 2, ++cluster.now).is_accepted());
    const CoordinatorDecisions failed =
        to.on_shard_saved({2}, 1, 2, absl::InternalError("no state"), ++cluster.now).decisions();
    EXPECT_NE(find<AbandonShard>(failed), nullptr) << "that of the other stage, or it";
    EXPECT_THAT(names(failed), ElementsAre("checkpoint.failed"));
  }
}

TEST(CoordinationCheckpoint, WhatIsLeftOfAFailedOneIsDeleted) {
  Cluster cluster(saving_job());
  train(cluster, 4, 0);  // That of step 2 is being completed.
  Coordination& to = cluster.coordination;
  const CoordinatorDecisions failed =
      to.on_checkpoint_completed(2, absl::UnavailableError("disk full"), ++cluster.now).decisions();
  const auto* deleted = find<DeletePartials>(failed);
  ASSERT_NE(deleted, nullptr);
  EXPECT_EQ(deleted->generation, to.generation());
  EXPECT_EQ(deleted->steps_done, 2u);
  EXPECT_EQ(deleted->under_way, std::set<uint64_t>{4});
}

TEST(CoordinationCheckpoint, OneThatIsCompleteIsNotSentAgain) {
  Cluster cluster(saving_job());
  train(cluster, 2, 2);
  Coordination& to = cluster.coordination;
  for (const uint64_t steps : {0, 1, 2}) {
    EXPECT_EQ(to.on_shard_sent({2}, 1, steps, ++cluster.now).why_dropped(),
              DropReason::kUnexpected);
  }
}

TEST(CoordinationCheckpoint, ARunThatCannotFinishSaysWhatItWaitsFor) {
  JobSpec job = saving_job();
  job.training.steps = 4;
  Cluster cluster(job);
  train(cluster, 3, 2);
  cluster.finish_step(3);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kFinishing);
  cluster.coordination.on_shard_saved({1}, 0, 4, {}, ++cluster.now);
  cluster.now += static_cast<uint64_t>(job.comm.train_timeout_seconds * 1e6) + 1;
  for (const uint32_t worker : {1, 2}) cluster.coordination.on_heartbeat({worker}, {}, cluster.now);
  const CoordinatorDecisions over = cluster.coordination.on_timer(cluster.now);
  const auto* end = find<EndRun>(over);
  ASSERT_NE(end, nullptr);
  EXPECT_THAT(std::string(end->status.message()),
              HasSubstr("waiting for stage 1 of the checkpoint of step 4 from w2"));
}

TEST(CoordinationCheckpoint, AStageThatDoesNotComeFailsItsCheckpointAndTheNextIsReceived) {
  Cluster cluster(saving_job());
  cluster.start();
  for (uint64_t step = 0; step < 4; ++step) cluster.finish_step(step);
  Coordination& to = cluster.coordination;
  CoordinatorOutcome first = to.on_shard_sent({2}, 1, 2, ++cluster.now);
  ASSERT_TRUE(first.is_accepted());
  const CoordinatorDecisions sent = std::move(first).decisions();
  EXPECT_TRUE(to.on_shard_sent({2}, 1, 4, ++cluster.now).is_accepted());
  EXPECT_TRUE(to.on_shard_layer(1, 2, ++cluster.now).is_accepted());
  cluster.now += static_cast<uint64_t>(saving_job().comm.train_timeout_seconds * 1e6);
  for (const uint32_t worker : {1, 2}) to.on_heartbeat({worker}, {}, cluster.now);
  const CoordinatorDecisions late = to.on_timer(cluster.now);
  EXPECT_NE(find<AbandonShard>(late), nullptr);
  ASSERT_NE(find<ReceiveShard>(late), nullptr);
  EXPECT_EQ(find<ReceiveShard>(late)->steps_done, 4u);
  const auto* failed = find<RunEvent>(late);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->name, "checkpoint.failed");
  EXPECT_THAT(failed->text, HasSubstr("1 of 3 layers"));
  const CoordinatorDecisions written =
      to.on_shard_received(*find<ReceiveShard>(sent), {}, ++cluster.now).decisions();
  ASSERT_EQ(written.size(), 1u) << "it was given up";
  EXPECT_NE(find<DeletePartials>(written), nullptr);
}

TEST(CoordinationCheckpoint, AChangeThatLosesNothingWaitsForNoCheckpoint) {
  Cluster cluster(saving_job());
  train(cluster, 4, 2);
  cluster.lose(2);
  EXPECT_NE(find<AssignPlan>(cluster.quiesced(1, {{4, {0, 6}}})), nullptr);
}

TEST(CoordinationCheckpoint, BeforeARollbackWhatWorkersHaveLeftIsLookedFor) {
  for (const uint64_t left : {0, 3, 5}) {
    Cluster cluster(saving_job());
    train(cluster, 5, 4);
    cluster.lose(2);
    cluster.plans_at_once = false;
    const CoordinatorDecisions asked = cluster.quiesced(1, {{5, kFront}});
    ASSERT_NE(find<SeekLeftState>(asked), nullptr);
    EXPECT_EQ(find<SeekLeftState>(asked)->steps_done, 5u);
    EXPECT_EQ(generation_of(find<SeekLeftState>(asked)->generations, 5), 1u);
    EXPECT_EQ(find<AssignPlan>(asked), nullptr);
    cluster.now += 3'600'000'000;  // However long the disk takes: nobody is late.
    cluster.coordination.on_heartbeat({1}, {}, cluster.now);
    EXPECT_EQ(find<DismissWorker>(cluster.coordination.on_timer(cluster.now)), nullptr);
    const CoordinatorDecisions found =
        cluster.decided(cluster.coordination.on_left_state(left, ++cluster.now));
    ASSERT_NE(find<AssignPlan>(found), nullptr);
    EXPECT_TRUE(find<AssignPlan>(found)->restore.from_checkpoint);
    // A checkpoint was made of it, so that of step 4 is not whole.
    EXPECT_EQ(find<AssignPlan>(found)->restore.first_step, left == 0 ? 4 : left);
    EXPECT_TRUE(cluster.coordination.on_left_state(5, ++cluster.now).is_dropped());
  }
}

/// The disk is full, for instance.
TEST(CoordinationCheckpoint, WhileNoneCanBeMadeOfWhatWorkersHaveLeftNoStepIsTakenBack) {
  Cluster cluster(saving_job());
  train(cluster, 5, 4);
  const absl::Status full = absl::ResourceExhaustedError("no space");
  EXPECT_TRUE(cluster.coordination.on_left_state_delayed(full, ++cluster.now).is_dropped());
  cluster.lose(2);
  cluster.plans_at_once = false;
  ASSERT_NE(find<SeekLeftState>(cluster.quiesced(1, {{5, kFront}})), nullptr);
  size_t told = 0;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    cluster.now += 500'000;
    cluster.coordination.on_heartbeat({1}, {}, cluster.now);
    CoordinatorDecisions made = cluster.coordination.on_timer(cluster.now);
    append(made, cluster.decided(cluster.coordination.on_left_state_delayed(full, cluster.now)));
    for (const CoordinatorDecision& each : made) {
      const auto* event = std::get_if<RunEvent>(&each);
      ASSERT_TRUE(event != nullptr && event->name == "checkpoint.waiting") << "nothing else";
      EXPECT_THAT(event->text, HasSubstr("no space"));
      ++told;
    }
  }
  EXPECT_EQ(told, 1u);
  const CoordinatorDecisions found =
      cluster.decided(cluster.coordination.on_left_state(5, ++cluster.now));
  ASSERT_NE(find<AssignPlan>(found), nullptr);
  EXPECT_EQ(find<AssignPlan>(found)->restore.first_step, 5u);
}

TEST(CoordinationCheckpoint, AChangeThatBeginsMeanwhileWaitsForTheAnswer) {
  Cluster cluster(saving_job());
  train(cluster, 5, 4);
  cluster.lose(2);
  cluster.plans_at_once = false;
  ASSERT_NE(find<SeekLeftState>(cluster.quiesced(1, {{5, kFront}})), nullptr);
  cluster.join(3);
  cluster.join(4);
  cluster.lose(3);
  cluster.quiesced(1, {{5, kFront}});
  EXPECT_EQ(find<AssignPlan>(cluster.quiesced(4)), nullptr);
  const CoordinatorDecisions found =
      cluster.decided(cluster.coordination.on_left_state(5, ++cluster.now));
  ASSERT_NE(find<AssignPlan>(found), nullptr);
  EXPECT_EQ(find<AssignPlan>(found)->restore.first_step, 5u);
}

/// It would be too much for the one who was there when the disk was asked.
TEST(CoordinationCheckpoint, TheLayoutIsMadeForThoseWhoAreHereWhenTheAnswerComes) {
  Cluster cluster(saving_job());
  train(cluster, 5, 4);
  cluster.lose(2);
  cluster.plans_at_once = false;
  ASSERT_NE(find<SeekLeftState>(cluster.quiesced(1, {{5, kFront}})), nullptr);
  cluster.join(3);
  cluster.quiesced(3);
  cluster.now += 10'000'000;
  const CoordinatorDecisions found =
      cluster.decided(cluster.coordination.on_left_state(0, ++cluster.now));
  const auto* assigned = find<AssignPlan>(found);
  ASSERT_NE(assigned, nullptr);
  EXPECT_EQ(plan_workers(assigned->plan), (std::set<WorkerId>{{1}, {3}}));
}

TEST(CoordinationCheckpoint, ADamagedOneLeadsToAnOlderOne) {
  Cluster cluster(saving_job());
  const CoordinatorDecisions first = restore_from_four(cluster);
  ASSERT_EQ(find<AssignPlan>(first)->restore.first_step, 4u);
  const uint64_t generation = cluster.coordination.generation();
  const CoordinatorDecisions told = cluster.decided(
      cluster.coordination.on_checkpoint_unreadable({1}, "h.0.ln_1.bias", ++cluster.now));
  EXPECT_NE(find<VerifyCheckpoint>(told), nullptr);
  EXPECT_TRUE(
      cluster.coordination.on_checkpoint_unreadable({1}, "the same", ++cluster.now).is_dropped());
  // However long it takes to read: nobody is late.
  cluster.now += 3'600'000'000;
  cluster.coordination.on_heartbeat({1}, {}, cluster.now);
  cluster.coordination.on_timer(cluster.now);
  const CoordinatorDecisions decided = cluster.decided(cluster.coordination.on_checkpoint_verified(
      {absl::OkStatus(), absl::OkStatus(), 2, {"tensor h.0.ln_1.bias is damaged"}}, ++cluster.now));
  ASSERT_NE(find<RunEvent>(decided), nullptr);
  EXPECT_EQ(find<RunEvent>(decided)->name, "checkpoint.damaged");
  EXPECT_THAT(find<RunEvent>(decided)->text, HasSubstr("h.0.ln_1.bias"));
  EXPECT_EQ(cluster.coordination.generation(), generation + 1);
  const CoordinatorDecisions again = cluster.quiesced(1);
  EXPECT_TRUE(find<AssignPlan>(again)->restore.from_checkpoint);
  EXPECT_EQ(find<AssignPlan>(again)->restore.first_step, 2u);
  EXPECT_NE(find<RewindJournal>(cluster.prepared(1)), nullptr);
}

TEST(CoordinationCheckpoint, WhoDoesNotSeeItIsSentTheLayersOfItsReplicas) {
  Cluster cluster(saving_job());
  EXPECT_EQ(cluster.coordination.on_layers_wanted({1}, ++cluster.now).why_dropped(),
            DropReason::kUnknown);
  restore_from_four(cluster);
  const CoordinatorDecisions decided =
      cluster.decided(cluster.coordination.on_layers_wanted({1}, ++cluster.now));
  const auto* order = find<SendLayers>(decided);
  ASSERT_NE(order, nullptr);
  EXPECT_EQ(order->generation, cluster.coordination.generation());
  EXPECT_EQ(order->worker, WorkerId{1});
  EXPECT_THAT(order->layers, ElementsAre(0, 1, 2, 3, 4, 5)) << "it hosts all, as it is alone";
  EXPECT_EQ(order->steps_done, 4u);
  EXPECT_EQ(cluster.coordination.on_layers_wanted({1}, ++cluster.now).why_dropped(),
            DropReason::kRepeated);
  EXPECT_EQ(cluster.coordination.on_layers_wanted({2}, ++cluster.now).why_dropped(),
            DropReason::kUnknown);
  // What cannot be read here is verified, as if the worker had said so.
  EXPECT_NE(find<VerifyCheckpoint>(cluster.decided(cluster.coordination.on_checkpoint_unreadable(
                {1}, "h.0.ln_1.bias", ++cluster.now))),
            nullptr);
}

TEST(CoordinationCheckpoint, NoLayersAreSentForAPlanThatNeedsNone) {
  Cluster cluster(saving_job());
  cluster.join(1);
  cluster.join(2);
  EXPECT_EQ(cluster.coordination.on_layers_wanted({1}, ++cluster.now).why_dropped(),
            DropReason::kUnexpected);
  cluster.quiesced(1);
  cluster.quiesced(2);
  cluster.prepared(1);
  cluster.prepared(2);
  EXPECT_EQ(cluster.coordination.on_layers_wanted({1}, ++cluster.now).why_dropped(),
            DropReason::kUnexpected);
}

TEST(CoordinationCheckpoint, WithoutAWholeOneTheRunEndsAndNamesTheFault) {
  Cluster cluster(saving_job());
  restore_from_four(cluster);
  cluster.coordination.on_checkpoint_unreadable({1}, "a tensor", ++cluster.now);
  const CoordinatorDecisions decided = cluster.decided(cluster.coordination.on_checkpoint_verified(
      {absl::OkStatus(), absl::DataLossError("h.0.ln_1.bias"), 0, {}}, ++cluster.now));
  ASSERT_NE(find<EndRun>(decided), nullptr);
  EXPECT_TRUE(absl::IsDataLoss(find<EndRun>(decided)->status));
}

TEST(CoordinationCheckpoint, WhoCannotReadAWholeOneIsLost) {
  Cluster cluster(saving_job());
  restore_from_four(cluster);
  cluster.coordination.on_checkpoint_unreadable({1}, "no such file", ++cluster.now);
  const CoordinatorDecisions decided = cluster.decided(cluster.coordination.on_checkpoint_verified(
      {absl::OkStatus(), absl::OkStatus(), 4, {}}, ++cluster.now));
  EXPECT_EQ(find<EndRun>(decided), nullptr) << "another worker may see it";
  ASSERT_NE(find<DismissWorker>(decided), nullptr);
  EXPECT_EQ(find<DismissWorker>(decided)->worker, WorkerId{1});
  EXPECT_THAT(find<RunEvent>(decided)->text, HasSubstr("no such file"));
}

TEST(CoordinationCheckpoint, AComplaintOutOfPlaceChangesNothing) {
  Cluster cluster(saving_job());
  cluster.start();
  EXPECT_TRUE(cluster.coordination.on_checkpoint_unreadable({1}, "x", ++cluster.now).is_dropped());
  EXPECT_TRUE(cluster.coordination.on_checkpoint_unreadable({9}, "x", ++cluster.now).is_dropped());
  EXPECT_TRUE(
      cluster.coordination
          .on_checkpoint_verified({absl::OkStatus(), absl::OkStatus(), 2, {}}, ++cluster.now)
          .is_dropped());
}

TEST(CoordinationCheckpoint, AtAStartWorkersJoinBeforeTheCheckpointIsRead) {
  Coordination::Options options;
  options.job = saving_job();
  options.worker_count = 2;
  options.committed_steps = options.durable_step = 4;
  options.is_verified = false;
  Cluster cluster(std::move(options));
  EXPECT_NE(find<WelcomeWorker>(cluster.join(1)), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(cluster.join(2)), nullptr);
  const CoordinatorDecisions decided = cluster.decided(cluster.coordination.on_checkpoint_verified(
      {absl::OkStatus(), absl::OkStatus(), 2, {"step 4 is damaged"}}, ++cluster.now));
  EXPECT_NE(find<QuiesceWorker>(decided), nullptr);
  cluster.quiesced(1);
  EXPECT_EQ(find<AssignPlan>(cluster.quiesced(2))->restore.first_step, 2u);
}

/// A coordinator is started again, whose only checkpoint is a step older than its journal.
Coordination::Options restarted() {
  Coordination::Options options;
  options.job = saving_job();
  options.worker_count = 2;
  options.committed_steps = 5;
  options.durable_step = 4;
  options.generation = 1;
  options.generations = {{0, 1}};
  options.last_plan = *make_layout_plan(options.job, {{1}, {2}}, 1);
  return options;
}

/// It is not known yet that the checkpoint is damaged.
Cluster restarted_without_checkpoint() {
  Coordination::Options options = restarted();
  options.is_verified = false;
  return Cluster(std::move(options));
}

/// Its predecessor has failed at the last checkpoint.
TEST(CoordinationCheckpoint, BehindTheLastStepItIsSaidThatOnlyTheCheckpointIsLeft) {
  Coordination::Options options = restarted();
  options.job.training.steps = 5;
  Cluster cluster(std::move(options));
  cluster.join(1, 1);
  cluster.join(2, 2);
  cluster.quiesced(1, {{5, kFront}});
  cluster.quiesced(2, {{5, {3, 6}}});
  cluster.prepared(1);
  const CoordinatorDecisions started = cluster.prepared(2);
  ASSERT_NE(find<StartRun>(started), nullptr);
  EXPECT_TRUE(find<StartRun>(started)->order.checkpoint);
  ASSERT_NE(find<RunEvent>(started), nullptr);
  EXPECT_EQ(find<RunEvent>(started)->text,
            "all 5 steps are done; what is left: the last checkpoint");
}

TEST(CoordinationCheckpoint, WithADamagedOneLiveStateIsGoneOnWith) {
  for (const bool is_live : {true, false}) {
    Cluster cluster = restarted_without_checkpoint();
    cluster.join(1, 1);
    cluster.join(2, 2);
    cluster.decided(cluster.coordination.on_checkpoint_verified(
        {absl::OkStatus(), absl::DataLossError("damaged"), 0, {"damaged"}}, ++cluster.now));
    const uint64_t held = is_live ? 5 : 3;
    cluster.quiesced(1, {{held, kFront}});
    const CoordinatorDecisions decided = cluster.quiesced(2, {{held, {3, 6}}});
    if (is_live) {
      ASSERT_NE(find<AssignPlan>(decided), nullptr);
      EXPECT_EQ(find<AssignPlan>(decided)->restore.first_step, 5u);
    } else {
      ASSERT_NE(find<EndRun>(decided), nullptr) << "there is nothing to go on from";
      EXPECT_TRUE(absl::IsDataLoss(find<EndRun>(decided)->status));
    }
  }
}

TEST(CoordinationCheckpoint, WhatWorkersHaveLeftTakesThePlaceOfADamagedOneOfThatStep) {
  Cluster cluster = restarted_without_checkpoint();
  cluster.join(1, 1);
  cluster.join(2, 2);
  cluster.decided(cluster.coordination.on_checkpoint_verified(
      {absl::OkStatus(), absl::DataLossError("damaged"), 0, {"damaged"}}, ++cluster.now));
  cluster.quiesced(1);
  cluster.plans_at_once = false;
  ASSERT_NE(find<SeekLeftState>(cluster.quiesced(2)), nullptr);
  const CoordinatorDecisions found =
      cluster.decided(cluster.coordination.on_left_state(4, ++cluster.now));
  ASSERT_NE(find<AssignPlan>(found), nullptr);
  EXPECT_EQ(find<AssignPlan>(found)->restore.first_step, 4u);
}

}  // namespace
}  // namespace skein::plans
