// What the coordination does when members come and go.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include "absl/strings/str_cat.h"

#include "plans/elastic/route_around.hpp"
#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr LayerRange kFrontStage{0, 3};  // A model of 4 blocks in two stages.
constexpr LayerRange kBack{3, 6};

JobSpec long_job() {
  JobSpec job = small_job();
  job.training.steps = 100;
  return job;
}

template <class Decision>
size_t count(const CoordinatorDecisions& decisions) {
  size_t found = 0;
  for (const CoordinatorDecision& decision : decisions) {
    found += std::holds_alternative<Decision>(decision) ? 1 : 0;
  }
  return found;
}

TEST(CoordinationElastic, ALossQuiescesTheOthersAndTheyGoOnWithWhatTheyHold) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.finish_step(0);
  const CoordinatorDecisions lost = cluster.lose(2);
  ASSERT_NE(find<QuiesceWorker>(lost), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(lost)->worker, WorkerId{1});
  EXPECT_EQ(find<QuiesceWorker>(lost)->generation, 2u);
  EXPECT_EQ(find<QuiesceWorker>(lost)->committed_steps, 1u);
  const CoordinatorDecisions assigned =
      cluster.quiesced(1, {{1, kFrontStage}, {1, kBack}});  // Its own and a snapshot.
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 1u);
  EXPECT_THAT(find<AssignPlan>(assigned)->restore.moves, IsEmpty());
  EXPECT_EQ(find<RewindJournal>(assigned), nullptr);
  EXPECT_NE(find<StartRun>(cluster.prepared(1)), nullptr);
  EXPECT_NE(find<JournalCommit>(cluster.ready(0, 1)), nullptr);
}

TEST(CoordinationElastic, WithoutTheNewestStateItGoesBackAndTheJournalToo) {
  Cluster cluster(long_job());
  cluster.start();
  for (uint64_t step = 0; step < 5; ++step) cluster.finish_step(step);
  cluster.lose(2);
  const CoordinatorDecisions assigned =
      cluster.quiesced(1, {{5, kFrontStage}, {3, kFrontStage}, {3, kBack}});
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 3u);
  EXPECT_EQ(find<RewindJournal>(assigned), nullptr) << "the plan may not come about";
  const CoordinatorDecisions started = cluster.prepared(1);
  ASSERT_NE(find<RewindJournal>(started), nullptr);
  EXPECT_EQ(find<RewindJournal>(started)->first_step, 3u);
  EXPECT_EQ(cluster.coordination.steps_done(), 3u);
  EXPECT_GT(cluster.coordination.goodput(cluster.now).redone_s, 0);
}

/// Five steps; then the link of worker 2 closes, which may live.
struct ClosedLink : Cluster {
  explicit ClosedLink(JobSpec job = long_job()) : Cluster(std::move(job)) {
    start();
    for (uint64_t step = 0; step < 5; ++step) finish_step(step);
    closed_are_dead = false;
    check = *find<CheckListener>(lose(2));
    waits = quiesced(1, {{5, kFrontStage}, {3, kFrontStage}, {3, kBack}});
  }
  CheckListener check;
  CoordinatorDecisions waits;
};

TEST(CoordinationElastic, WhoseLinkClosesMayLiveAndIsWaitedForBeforeStepsAreTakenBack) {
  ClosedLink cluster;
  EXPECT_EQ(cluster.check.address, "127.0.0.1:2");
  EXPECT_EQ(find<AssignPlan>(cluster.waits), nullptr);
  ASSERT_NE(find<RunEvent>(cluster.waits), nullptr);
  EXPECT_EQ(find<RunEvent>(cluster.waits)->name, "run.waiting");
  cluster.now += 8'000'000;
  EXPECT_NE(find<QuiesceWorker>(cluster.join(7, 2)), nullptr);
  const CoordinatorDecisions assigned = cluster.quiesced(2, {{5, kBack}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 5u);
}

TEST(CoordinationElastic, WhoIsDeadIsNotWaitedFor) {
  ClosedLink cluster;
  EXPECT_TRUE(cluster.coordination.on_worker_gone("127.0.0.1:1", ++cluster.now).is_dropped());
  const CoordinatorDecisions assigned =
      cluster.decided(cluster.coordination.on_worker_gone("127.0.0.1:2", ++cluster.now));
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 3u);
  EXPECT_TRUE(cluster.coordination.on_worker_gone("127.0.0.1:2", ++cluster.now).is_dropped());
}

TEST(CoordinationElastic, WhoseLeaseIsOverIsNotWaitedFor) {
  ClosedLink cluster;
  cluster.now += 9'000'000;
  cluster.coordination.on_heartbeat({1}, {}, cluster.now);
  EXPECT_EQ(find<AssignPlan>(cluster.answered(cluster.coordination.on_timer(cluster.now))),
            nullptr);
  cluster.now += 3'000'000;
  cluster.coordination.on_heartbeat({1}, {}, cluster.now);
  EXPECT_EQ(find<AssignPlan>(cluster.answered(cluster.coordination.on_timer(cluster.now))), nullptr)
      << "it has a few attempts to connect";
  cluster.now += 1'000'000;
  EXPECT_NE(find<AssignPlan>(cluster.answered(cluster.coordination.on_timer(cluster.now))),
            nullptr);
}

TEST(CoordinationElastic, WhoHasNoPartInThePlanThatIsPreparedMayHoldTheStateOfTheOneBefore) {
  Cluster cluster(long_job());
  cluster.start();
  for (uint64_t step = 0; step < 5; ++step) cluster.finish_step(step);
  cluster.join(3);
  cluster.now += 1'000'000;
  cluster.decided(cluster.coordination.on_leave({2}, "SIGTERM", cluster.now));
  if (cluster.coordination.phase() == Coordination::Phase::kTraining) cluster.finish_step(5);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kQuiescing);
  const uint64_t steps = cluster.coordination.steps_done();
  cluster.quiesced(1, {{steps, kFrontStage}});
  cluster.quiesced(2, {{steps, kBack}});
  const CoordinatorDecisions made = cluster.quiesced(3);
  ASSERT_NE(find<AssignPlan>(made), nullptr);
  ASSERT_FALSE(find<AssignPlan>(made)->restore.moves.empty());
  cluster.closed_are_dead = false;
  EXPECT_NE(find<CheckListener>(cluster.lose(2)), nullptr);
  cluster.quiesced(1, {{steps, kFrontStage}});
  const CoordinatorDecisions waits = cluster.quiesced(3);
  EXPECT_EQ(find<AssignPlan>(waits), nullptr);
  ASSERT_NE(find<RunEvent>(waits), nullptr);
  EXPECT_EQ(find<RunEvent>(waits)->name, "run.waiting");
}

TEST(CoordinationElastic, WhoGoesWhileItsStepIsJournaledIsWaitedFor) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.finish_step(0);
  cluster.ready(0, 1);
  cluster.ready(1, 1);
  cluster.closed_are_dead = false;
  cluster.lose(2);
  EXPECT_NE(
      find<QuiesceWorker>(cluster.decided(cluster.coordination.on_journaled(1, ++cluster.now))),
      nullptr);
  const CoordinatorDecisions waits = cluster.quiesced(1, {{2, kFrontStage}});
  EXPECT_EQ(find<AssignPlan>(waits), nullptr) << "nobody here has the back stage";
  ASSERT_NE(find<RunEvent>(waits), nullptr);
  EXPECT_EQ(find<RunEvent>(waits)->name, "run.waiting");
}

TEST(CoordinationElastic, TheWaitForAWorkerDoesNotEndTheRun) {
  JobSpec job = long_job();
  job.comm.init_timeout_seconds = 4;  // A lease is ten seconds.
  ClosedLink cluster(job);
  EXPECT_EQ(find<AssignPlan>(cluster.waits), nullptr);
  cluster.now += 2'100'000;
  const CoordinatorDecisions gone_on = cluster.answered(cluster.coordination.on_timer(cluster.now));
  EXPECT_EQ(find<EndRun>(gone_on), nullptr);
  EXPECT_NE(find<AssignPlan>(gone_on), nullptr);
}

TEST(CoordinationElastic, ItsOwnPauseIsNobodysSilence) {
  Cluster cluster(long_job());
  cluster.start();
  const uint64_t pause_us = 12'000'000;  // A lease is ten seconds; the clock stood still.
  const CoordinatorDecisions told = cluster.coordination.on_own_pause(pause_us, cluster.now);
  ASSERT_NE(find<RunEvent>(told), nullptr);
  EXPECT_EQ(find<RunEvent>(told)->name, "coordinator.paused");
  EXPECT_TRUE(cluster.coordination.on_timer(cluster.now).empty());
  EXPECT_EQ(find<DismissWorker>(cluster.coordination.on_timer(cluster.now + 9'000'000)), nullptr);
  EXPECT_NE(find<DismissWorker>(cluster.coordination.on_timer(cluster.now + 11'000'000)), nullptr)
      << "who stays silent is lost all the same";
}

TEST(CoordinationElastic, WhoIsSilentIsLostAlsoBetweenOnePauseAndTheNext) {
  Cluster cluster(long_job());
  cluster.start();
  uint64_t awake_us = 0;
  while (awake_us < 11'000'000) {
    awake_us += 200'000;
    cluster.coordination.on_own_pause(1'000'000, cluster.now + awake_us);
    EXPECT_EQ(find<DismissWorker>(cluster.coordination.on_timer(cluster.now + awake_us)), nullptr);
  }
  const uint64_t late = cluster.now + awake_us + kRejoinUs;
  cluster.coordination.on_own_pause(1'000'000, late);
  EXPECT_NE(find<DismissWorker>(cluster.coordination.on_timer(late)), nullptr);
}

TEST(CoordinationElastic, WhoComesAfterItsOwnPauseAndDiesAtOnceIsFlapping) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.finish_step(0);
  cluster.coordination.on_own_pause(12'000'000, cluster.now);
  for (PeerNumber peer = 7; peer < 10; ++peer) {
    cluster.now += 400'000;
    const CoordinatorDecisions joined = cluster.join(peer);
    ASSERT_NE(find<WelcomeWorker>(joined), nullptr);
    const WorkerId newcomer = find<WelcomeWorker>(joined)->worker;
    const uint64_t held_us = cluster.coordination.members().at(newcomer).eligible_us;
    EXPECT_EQ(held_us > cluster.now, peer == 9) << "the first early loss of a host is free";
    EXPECT_EQ(find<RunEvent>(cluster.lose(newcomer.value))->name, "worker.lost");
  }
}

TEST(CoordinationElastic, AfterItsOwnPauseItWaitsForWhoGaveItUp) {
  Cluster cluster(long_job());
  cluster.start();
  for (uint64_t step = 0; step < 5; ++step) cluster.finish_step(step);
  cluster.coordination.on_own_pause(12'000'000, cluster.now);
  cluster.closed_are_dead = false;
  EXPECT_NE(find<QuiesceWorker>(cluster.lose(2)), nullptr);
  const CoordinatorDecisions waits = cluster.quiesced(1, {{5, kFrontStage}});
  EXPECT_EQ(find<AssignPlan>(waits), nullptr) << "nothing but the initial weights is here";
  // What waited in the sockets: two more connections of the same process.
  for (PeerNumber peer : {7, 8, 9}) cluster.join(peer, 2);
  cluster.quiesced(1, {{5, kFrontStage}});
  const CoordinatorDecisions assigned = cluster.quiesced(2, {{5, kBack}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 5u);
  EXPECT_LE(cluster.coordination.members().at({2}).eligible_us, cluster.now)
      << "it is not flapping";
}

TEST(CoordinationElastic, AStopAbandonsAStepThatDoesNotEndAndSavesWhatIsCommitted) {
  JobSpec job = long_job();
  job.checkpoint.enable = true;
  Cluster cluster(job);
  cluster.start();
  cluster.now += 100'000;
  cluster.finish_step(0);
  const CoordinatorDecisions stopping =
      cluster.decided(cluster.coordination.on_stop_request("a signal", cluster.now));
  EXPECT_EQ(find<QuiesceWorker>(stopping), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(cluster.coordination.on_timer(cluster.now + 1'000'000)), nullptr);
  cluster.now += 1'300'000;
  ASSERT_NE(find<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), nullptr);
  cluster.quiesced(1, {{1, kFrontStage}});
  cluster.quiesced(2, {{1, kBack}});
  cluster.prepared(1);
  const CoordinatorDecisions started = cluster.prepared(2);
  ASSERT_NE(find<StartRun>(started), nullptr);
  EXPECT_TRUE(find<StartRun>(started)->order.last);
  EXPECT_TRUE(find<StartRun>(started)->order.checkpoint);
}

TEST(CoordinationElastic, AStopThatDoesNotComeAboutFails) {
  JobSpec job = long_job();
  job.checkpoint.enable = true;
  job.elastic.heartbeat_timeout_seconds = 1000;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  cluster.coordination.on_stop_request("a signal", cluster.now);
  cluster.now += 1'100'000'000;
  for (uint32_t n : {1, 2}) cluster.coordination.on_heartbeat({n}, {}, cluster.now);
  const CoordinatorDecisions decisions = cluster.coordination.on_timer(cluster.now);
  ASSERT_NE(find<EndRun>(decisions), nullptr);
  EXPECT_FALSE(find<EndRun>(decisions)->status.ok());
}

TEST(CoordinationElastic, AJournalThatCannotBeWrittenIsWaitedFor) {
  JobSpec job = long_job();
  job.comm.train_timeout_seconds = 5;
  Cluster cluster(job);
  cluster.start();
  cluster.ready(0, 0);
  cluster.ready(1, 0);
  size_t told = 0;
  for (int half_second = 0; half_second < 40; ++half_second) {
    cluster.now += 500'000;
    for (uint32_t n : {1, 2}) cluster.coordination.on_heartbeat({n}, {}, cluster.now);
    told += count<RunEvent>(cluster.decided(cluster.coordination.on_journal_delayed(
        absl::UnavailableError("the disk is full"), cluster.now)));
    EXPECT_TRUE(cluster.coordination.on_timer(cluster.now).empty());
  }
  EXPECT_EQ(told, 1u);
  const CoordinatorDecisions decisions =
      cluster.decided(cluster.coordination.on_journaled(0, ++cluster.now));
  EXPECT_NE(find<BroadcastCommit>(decisions), nullptr);
}

TEST(CoordinationElastic, AStopThatTheJournalHoldsUpNamesIt) {
  JobSpec job = long_job();
  job.elastic.heartbeat_timeout_seconds = 1000;
  Cluster cluster(job);
  cluster.start();
  cluster.ready(0, 0);
  cluster.ready(1, 0);
  cluster.coordination.on_stop_request("a signal", ++cluster.now);
  cluster.coordination.on_journal_delayed(absl::UnavailableError("the disk is full"),
                                          ++cluster.now);
  cluster.now += 1'100'000'000;
  for (uint32_t n : {1, 2}) cluster.coordination.on_heartbeat({n}, {}, cluster.now);
  const CoordinatorDecisions decisions = cluster.coordination.on_timer(cluster.now);
  ASSERT_NE(find<EndRun>(decisions), nullptr);
  EXPECT_THAT(std::string(find<EndRun>(decisions)->status.message()),
              HasSubstr("the journal (the disk is full)"));
}

TEST(CoordinationElastic, ARollbackThatDidNotStartIsForgottenWhenTheStateIsBack) {
  Cluster cluster(long_job());
  cluster.start();
  for (uint64_t step = 0; step < 5; ++step) cluster.finish_step(step);
  cluster.lose(2);
  cluster.quiesced(1, {{5, kFrontStage}, {3, kFrontStage}, {3, kBack}});
  cluster.join(7, 2);
  cluster.coordination.on_peer_failure({1}, {}, "a copy is damaged", ++cluster.now);
  cluster.now += 1'000'000;
  const CoordinatorDecisions quiesces = cluster.coordination.on_timer(cluster.now);
  ASSERT_EQ(count<QuiesceWorker>(quiesces), 2u) << "who prepares in vain is not waited for";
  EXPECT_EQ(find<QuiesceWorker>(quiesces)->committed_steps, 5u);
  cluster.quiesced(1, {{5, kFrontStage}});
  const CoordinatorDecisions assigned = cluster.quiesced(2, {{5, kBack}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 5u);
  cluster.prepared(1);
  EXPECT_EQ(find<RewindJournal>(cluster.prepared(2)), nullptr);
  EXPECT_EQ(cluster.coordination.steps_done(), 5u);
}

TEST(CoordinationElastic, AWorkerOfALaterGenerationDoesNotSpoilThePlanThatIsPrepared) {
  Cluster cluster(long_job());
  cluster.gather();
  JoinRequest request{"host", 9, "127.0.0.1:9", "cpu x1", 1.0, WorkerId{9}, 7};
  cluster.coordination.on_join(9, request, ++cluster.now);
  cluster.prepared(1);
  EXPECT_NE(find<StartRun>(cluster.prepared(2)), nullptr);
  const CoordinatorDecisions lost = cluster.lose(2);
  ASSERT_NE(find<QuiesceWorker>(lost), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(lost)->generation, 8u) << "news to everybody";
  request.generation = 8;
  const CoordinatorDecisions back =
      cluster.coordination.on_join(10, request, ++cluster.now).decisions();
  ASSERT_NE(find<QuiesceWorker>(back), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(back)->generation, 9u) << "it would not answer a repeat";
}

TEST(CoordinationElastic, TheCommitBeforeAChangeOfPlanIsOfThePlanThatDidTheStep) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.ready(0, 0);
  cluster.ready(1, 0);
  cluster.lose(2);
  const CoordinatorDecisions commit =
      cluster.coordination.on_journaled(0, ++cluster.now).decisions();
  ASSERT_NE(find<BroadcastCommit>(commit), nullptr);
  ASSERT_NE(find<QuiesceWorker>(commit), nullptr);
  EXPECT_EQ(find<BroadcastCommit>(commit)->generation, 1u);
  EXPECT_EQ(find<QuiesceWorker>(commit)->generation, 2u);
}

TEST(CoordinationElastic, StateOfStepsThatWereTakenBackIsNotUsed) {
  Cluster cluster(long_job());
  cluster.start();
  for (uint64_t step = 0; step < 5; ++step) cluster.finish_step(step);
  cluster.lose(2);
  cluster.quiesced(1, {{5, kFrontStage}, {3, kFrontStage}, {3, kBack}});
  cluster.prepared(1);
  EXPECT_EQ(cluster.coordination.generation_of(5), 1u) << "or of what comes in its place";
  cluster.ready(0, 3);
  cluster.ready(1, 3);
  cluster.coordination.on_journaled(3, ++cluster.now);
  EXPECT_EQ(cluster.coordination.generation_of(3), 1u);
  EXPECT_EQ(cluster.coordination.generation_of(4), 2u);
  cluster.join(7, 2);
  cluster.now += 2'000'000;
  const CoordinatorDecisions quiesces = cluster.lose(1);
  ASSERT_NE(find<QuiesceWorker>(quiesces), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(quiesces)->committed_generation, 2u);
  const CoordinatorDecisions assigned =
      cluster.coordination
          .on_quiesced({2}, cluster.coordination.generation(), {{4, {0, 6}, 1}, {3, {0, 6}, 1}},
                       ++cluster.now)
          .decisions();
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 3u);
  EXPECT_EQ(find<AssignPlan>(assigned)->state_generation, 1u);
}

TEST(CoordinationElastic, NobodyHasTheStateSoTheCheckpointIsUsed) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.finish_step(0);
  cluster.lose(2);
  const CoordinatorDecisions assigned = cluster.quiesced(1, {{1, kFrontStage}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_TRUE(find<AssignPlan>(assigned)->restore.from_checkpoint);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 0u) << "the initial weights";
}

TEST(CoordinationElastic, ACommitThatIsBeingJournaledGoesOutBeforeTheQuiesce) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.ready(0, 0);
  cluster.ready(1, 0);
  EXPECT_EQ(find<QuiesceWorker>(cluster.lose(2)), nullptr) << "not yet";
  const CoordinatorDecisions decisions =
      cluster.coordination.on_journaled(0, ++cluster.now).decisions();
  ASSERT_NE(find<BroadcastCommit>(decisions), nullptr);
  ASSERT_NE(find<QuiesceWorker>(decisions), nullptr);
  EXPECT_TRUE(std::holds_alternative<BroadcastCommit>(decisions.front()));
  EXPECT_EQ(find<QuiesceWorker>(decisions)->committed_steps, 1u);
}

TEST(CoordinationElastic, ReportsOfAnOlderGenerationAreStale) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.ready(0, 0);
  cluster.lose(2);
  EXPECT_TRUE(cluster.ready(1, 0).empty());
  EXPECT_TRUE(cluster.coordination.on_quiesced({1}, 1, {}, ++cluster.now).decisions().empty());
  EXPECT_TRUE(cluster.coordination.on_prepared({1}, 1, ++cluster.now).decisions().empty());
  EXPECT_NE(find<AssignPlan>(cluster.quiesced(1)), nullptr);
  EXPECT_EQ(cluster.coordination.steps_done(), 0u);
}

TEST(CoordinationElastic, LossesThatComeTogetherAreHandledAsOne) {
  JobSpec job = long_job();
  job.parallelism.data_parallel_replicate_degree = 2;
  Cluster cluster(job, 4);
  for (PeerNumber peer = 1; peer <= 4; ++peer) cluster.join(peer);
  for (uint32_t worker = 1; worker <= 4; ++worker) cluster.quiesced(worker);
  for (uint32_t worker = 1; worker <= 4; ++worker) cluster.prepared(worker);
  EXPECT_EQ(count<QuiesceWorker>(cluster.lose(2)), 3u);
  const CoordinatorDecisions second = cluster.lose(4);
  EXPECT_EQ(count<QuiesceWorker>(second), 0u) << "the others quiesce already";
  cluster.quiesced(1, {{0, kFrontStage}});
  const CoordinatorDecisions assigned = cluster.quiesced(3, {{0, kBack}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(cluster.coordination.generation(), 2u);
  EXPECT_EQ(find<AssignPlan>(assigned)->plan.stages.size(), 2u);
  EXPECT_THAT(find<AssignPlan>(assigned)->restore.moves, IsEmpty()) << "replicas are left";
}

TEST(CoordinationElastic, ALossWhileThePlanIsPreparedStartsAnotherRound) {
  Cluster cluster(long_job());
  cluster.gather();
  const CoordinatorDecisions lost = cluster.lose(2);
  ASSERT_NE(find<QuiesceWorker>(lost), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(lost)->generation, 2u);
  EXPECT_NE(find<AssignPlan>(cluster.quiesced(1)), nullptr);
  EXPECT_NE(find<StartRun>(cluster.prepared(1)), nullptr);
}

TEST(CoordinationElastic, AJoinerIsUsedFromTheNextStepBoundaryOn) {
  JobSpec job = long_job();
  job.parallelism.pipeline_parallel_degree = 0;
  Cluster cluster(job);
  cluster.start();
  const CoordinatorDecisions joined = cluster.join(3);
  EXPECT_NE(find<WelcomeWorker>(joined), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(joined), nullptr) << "the step in progress is not lost";
  cluster.now += 1'000'000;
  cluster.coordination.on_timer(cluster.now);
  const CoordinatorDecisions commit = cluster.finish_step(0);
  ASSERT_NE(find<BroadcastCommit>(commit), nullptr);
  EXPECT_TRUE(find<BroadcastCommit>(commit)->order.last) << "of this plan";
  EXPECT_EQ(count<QuiesceWorker>(commit), 3u);
  cluster.quiesced(1, {{1, kFrontStage}});
  cluster.quiesced(2, {{1, kBack}});
  const CoordinatorDecisions assigned = cluster.quiesced(3);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->plan.stages.size(), 3u);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 1u);
  EXPECT_EQ(cluster.coordination.goodput(cluster.now).redone_s, 0);
}

TEST(CoordinationElastic, ALeaverGivesItsStateAwayAndGoes) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.coordination.on_leave({2}, "SIGTERM", ++cluster.now);
  EXPECT_TRUE(cluster.coordination.on_leave({2}, "SIGTERM", ++cluster.now).decisions().empty())
      << "a repeat";
  EXPECT_EQ(count<QuiesceWorker>(cluster.finish_step(0)), 2u);
  cluster.quiesced(1, {{1, kFrontStage}});
  const CoordinatorDecisions assigned = cluster.quiesced(2, {{1, kBack}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(worker_count(find<AssignPlan>(assigned)->plan), 1);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.moves.size(), 3u);
  const CoordinatorDecisions started = cluster.prepared(1);
  ASSERT_NE(find<StopWorker>(started), nullptr);
  EXPECT_EQ(find<StopWorker>(started)->worker, WorkerId{2});
  EXPECT_TRUE(cluster.lose(2).empty()) << "it was no member any more";
}

TEST(CoordinationElastic, WhoCannotGoOnGivesItsStateAwayAndGoes) {
  JobSpec job = long_job();
  job.checkpoint.enable = true;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  const absl::Status why = absl::DataLossError("token 300 is none");
  const auto fail = [&](uint32_t worker) {
    return cluster.decided(
        cluster.coordination.on_worker_failed(WorkerId{worker}, why, ++cluster.now));
  };
  const CoordinatorDecisions told = fail(2);
  EXPECT_EQ(find<RunEvent>(told)->name, "worker.failed");
  EXPECT_EQ(count<QuiesceWorker>(told), 2u) << "its step will not end";
  EXPECT_TRUE(fail(2).empty()) << "a repeat";
  cluster.quiesced(1, {{1, kFrontStage}});
  const CoordinatorDecisions assigned = cluster.quiesced(2, {{1, kBack}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(worker_count(find<AssignPlan>(assigned)->plan), 1);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.moves.size(), 3u);
  const CoordinatorDecisions started = cluster.prepared(1);
  ASSERT_NE(find<StopWorker>(started), nullptr);
  EXPECT_EQ(find<StopWorker>(started)->worker, WorkerId{2});
  const CoordinatorDecisions ended = fail(1);
  ASSERT_NE(find<EndRun>(ended), nullptr) << "a second one says so";
  EXPECT_EQ(find<EndRun>(ended)->status.code(), why.code());
  EXPECT_TRUE(find<StopWorkers>(ended)->keeps_state);
}

TEST(CoordinationElastic, WhoCannotGoOnIsNotCountedOnWhateverIsMissing) {
  JobSpec job = long_job();
  job.elastic.min_workers = 2;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  cluster.decided(
      cluster.coordination.on_worker_failed({2}, absl::DataLossError("unread"), ++cluster.now));
  cluster.quiesced(1, {{1, kFrontStage}});
  const CoordinatorDecisions paused = cluster.quiesced(2, {{1, kBack}});
  EXPECT_EQ(find<AssignPlan>(paused), nullptr);
  ASSERT_NE(find<RunEvent>(paused), nullptr);
  EXPECT_EQ(find<RunEvent>(paused)->name, "run.paused");
  EXPECT_EQ(find<StopWorker>(paused), nullptr) << "what it holds is nowhere else";
}

TEST(CoordinationElastic, WhereNobodyCanGoOnTheRunSaysWhy) {
  JobSpec job = long_job();
  job.checkpoint.enable = true;
  job.comm.init_timeout_seconds = 60;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  const auto fail = [&](uint32_t worker) {
    return cluster.decided(cluster.coordination.on_worker_failed(
        WorkerId{worker}, absl::AbortedError("no memory"), ++cluster.now));
  };
  fail(2);
  fail(1);
  cluster.quiesced(1, {{1, kFrontStage}});
  EXPECT_EQ(find<RunEvent>(cluster.quiesced(2, {{1, kBack}}))->name, "run.paused");
  for (uint32_t worker : {1u, 2u}) {
    cluster.decided(cluster.coordination.on_heartbeat({worker}, {}, cluster.now + 61'000'000));
  }
  cluster.now += 61'000'000;
  const CoordinatorDecisions ended = cluster.decided(cluster.coordination.on_timer(cluster.now));
  ASSERT_NE(find<EndRun>(ended), nullptr);
  EXPECT_THAT(std::string(find<EndRun>(ended)->status.message()),
              ::testing::HasSubstr("no memory"));
  EXPECT_TRUE(find<StopWorkers>(ended)->keeps_state);
  EXPECT_TRUE(find<StopWorkers>(ended)->is_whole) << "all have said what they hold";
}

TEST(CoordinationElastic, WhoLackedMemoryAloneIsCountedOnAgainWithWhoIsBack) {
  JobSpec job = long_job();
  job.parallelism.pipeline_parallel_degree = 0;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  const std::vector<InventoryItem> held = {{1, kFrontStage}, {1, kBack}};
  const auto fail = [&] {
    ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kPreparing);
    cluster.decided(
        cluster.coordination.on_worker_failed({1}, absl::AbortedError("no memory"), ++cluster.now));
    EXPECT_TRUE(cluster.coordination.members().at({1}).has_failed);
  };
  cluster.lose(2);
  cluster.quiesced(1, held);
  fail();
  cluster.quiesced(1, held);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  cluster.join(3, 2);
  EXPECT_FALSE(cluster.coordination.members().at({1}).has_failed);
  cluster.now += kSecondUs;
  for (uint32_t id : {1, 2}) {
    cluster.decided(cluster.coordination.on_heartbeat({id}, {}, cluster.now));
  }
  cluster.decided(cluster.coordination.on_timer(cluster.now));
  cluster.quiesced(1, held);
  cluster.quiesced(2);
  fail();  // The plan is for both.
  cluster.lose(2);
  cluster.quiesced(1, held);
  cluster.join(4, 2);
  EXPECT_TRUE(cluster.coordination.members().at({1}).has_failed) << "it would fail again";
}

TEST(CoordinationElastic, WhereAllLackMemoryForTheFirstPlansOthersAreAwaited) {
  Cluster cluster(long_job());
  cluster.gather();
  for (uint32_t full : {2u, 1u}) {
    ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kPreparing);
    EXPECT_TRUE(cluster.coordination.failed_start(cluster.now).ok());
    cluster.decided(cluster.coordination.on_worker_failed(
        WorkerId{full}, absl::AbortedError("no memory"), ++cluster.now));
    cluster.quiesced(1);
    cluster.quiesced(2);
  }
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  const absl::Status why = cluster.coordination.failed_start(cluster.now);
  EXPECT_THAT(std::string(why.message()), HasSubstr("no memory"));
  cluster.join(3);
  for (uint32_t id : {1u, 2u}) {
    EXPECT_FALSE(cluster.coordination.members().at(WorkerId{id}).has_failed) << id;
  }
  EXPECT_TRUE(cluster.coordination.failed_start(cluster.now).ok());
}

TEST(CoordinationElastic, AfterALackOfMemoryWhoeverComesGetsAPartOfThePlan) {
  JobSpec job = long_job();
  job.parallelism.pipeline_parallel_degree = 3;
  Cluster cluster(job, 3);
  for (uint32_t id : {1, 2, 3}) cluster.join(id);
  for (uint32_t id : {1, 2, 3}) cluster.quiesced(id);
  for (uint32_t id : {1, 2, 3}) cluster.prepared(id);
  cluster.lose(2);
  cluster.lose(3);
  const std::vector<InventoryItem> all = {{0, {0, 6}}};
  ASSERT_NE(find<AssignPlan>(cluster.quiesced(1, all)), nullptr) << "for one";
  cluster.decided(
      cluster.coordination.on_worker_failed({1}, absl::AbortedError("no memory"), ++cluster.now));
  cluster.quiesced(1, all);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  cluster.join(4);
  cluster.now += kSecondUs;
  for (uint32_t id : {1, 4}) {
    cluster.decided(cluster.coordination.on_heartbeat({id}, {}, cluster.now));
  }
  cluster.decided(cluster.coordination.on_timer(cluster.now));
  cluster.quiesced(1, all);
  ASSERT_NE(find<AssignPlan>(cluster.quiesced(4)), nullptr);
  EXPECT_EQ(cluster.coordination.plan()->stages.size(), 2u) << "what was in a hurry is over";
}

TEST(CoordinationElastic, WhoLacksMemoryStaysWhenOthersLeaveAndGoesWhenItIsToLeaveItself) {
  JobSpec job = long_job();
  job.parallelism.pipeline_parallel_degree = 0;
  job.elastic.min_workers = 2;
  Cluster cluster(job, 3);
  for (uint32_t id : {1, 2, 3}) cluster.join(id);
  for (uint32_t id : {1, 2, 3}) cluster.quiesced(id);
  const auto fail = [&](uint32_t id) {
    cluster.decided(cluster.coordination.on_worker_failed({id}, absl::AbortedError("no memory"),
                                                          ++cluster.now));
  };
  fail(1);
  for (uint32_t id : {1, 2, 3}) cluster.quiesced(id);
  fail(2);
  for (uint32_t id : {1, 2, 3}) cluster.quiesced(id);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  cluster.decided(cluster.coordination.on_leave({3}, "a signal", ++cluster.now));
  EXPECT_FALSE(cluster.coordination.members().contains({3}));
  EXPECT_TRUE(cluster.coordination.members().contains({1})) << "it may help when others come";
  cluster.decided(cluster.coordination.on_leave({1}, "a signal", ++cluster.now));
  EXPECT_FALSE(cluster.coordination.members().contains({1}));
  EXPECT_TRUE(cluster.coordination.members().contains({2}));
}

/// Two that did not reach one another each lacked the memory for all layers.
TEST(CoordinationElastic, WhoLacksMemoryForItselfAloneIsCountedOnWhenALinkIsTriedAgain) {
  JobSpec job = long_job();
  job.parallelism.pipeline_parallel_degree = 0;
  Cluster cluster(job, 2);
  cluster.start();
  cluster.finish_step(0);
  const std::vector<InventoryItem> all = {{1, {0, 6}}};
  cluster.decided(cluster.coordination.on_unreachable({1}, {2}, "in vain", ++cluster.now));
  cluster.now += 500'000;
  cluster.decided(cluster.coordination.on_timer(cluster.now));
  for (uint32_t id : {1, 2}) cluster.quiesced(id, all);
  const auto fail = [&](uint32_t id) {
    cluster.decided(cluster.coordination.on_worker_failed({id}, absl::AbortedError("no memory"),
                                                          ++cluster.now));
    for (uint32_t each : {1, 2}) cluster.quiesced(each, all);
  };
  ASSERT_EQ(plan_workers(*cluster.coordination.plan()).size(), 1u);
  fail(plan_workers(*cluster.coordination.plan()).begin()->value);
  fail(plan_workers(*cluster.coordination.plan()).begin()->value);
  ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  for (int i = 0; i < 70; ++i) {
    cluster.now += 1'000'000;
    for (uint32_t id : {1, 2}) {
      cluster.decided(cluster.coordination.on_heartbeat({id}, {}, cluster.now));
    }
    cluster.decided(cluster.coordination.on_timer(cluster.now));
  }
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kQuiescing);
  for (uint32_t id : {1, 2}) cluster.quiesced(id, all);
  EXPECT_EQ(plan_workers(*cluster.coordination.plan()).size(), 2u);
}

/// More stages, more micro-batches in flight: the first stage of three needed more than that of
/// two.
TEST(CoordinationElastic, WhoLacksMemoryAmongManyIsCountedOnAmongAsManyAsItHasTrainedWith) {
  JobSpec job = long_job();
  job.parallelism.pipeline_parallel_degree = 0;
  Cluster cluster(job);
  cluster.start();
  cluster.join(3);
  cluster.now += 1'000'000;
  cluster.coordination.on_timer(cluster.now);
  cluster.finish_step(0);
  cluster.quiesced(1, {{1, kFrontStage}});
  cluster.quiesced(2, {{1, kBack}});
  cluster.quiesced(3);
  ASSERT_EQ(plan_workers(*cluster.coordination.plan()).size(), 3u);
  const auto fail = [&](uint32_t id) {
    cluster.decided(cluster.coordination.on_worker_failed({id}, absl::AbortedError("no memory"),
                                                          ++cluster.now));
    cluster.quiesced(1, {{1, kFrontStage}});
    cluster.quiesced(2, {{1, kBack}});
    cluster.quiesced(3);
  };
  fail(1);
  const std::set<WorkerId> others = {{2}, {3}};
  ASSERT_EQ(plan_workers(*cluster.coordination.plan()), others);
  fail(2);
  const std::set<WorkerId> again = {{1}, {3}};
  EXPECT_EQ(plan_workers(*cluster.coordination.plan()), again);
}

TEST(CoordinationElastic, WhoLacksMemoryAndThenCannotReadIsNotCountedOnAgain) {
  JobSpec job = long_job();
  job.parallelism.pipeline_parallel_degree = 0;
  Cluster cluster(job, 3);
  for (uint32_t id : {1, 2, 3}) cluster.join(id);
  for (uint32_t id : {1, 2, 3}) cluster.quiesced(id);
  for (uint32_t id : {1, 2, 3}) cluster.prepared(id);
  const std::vector<InventoryItem> all = {{0, {0, 6}}};
  cluster.lose(3);
  cluster.quiesced(1, all);
  cluster.quiesced(2, all);
  const auto fail = [&](const absl::Status& why) {
    return cluster.coordination.on_worker_failed({1}, why, ++cluster.now);
  };
  ASSERT_TRUE(fail(absl::AbortedError("no memory")).is_accepted());
  EXPECT_TRUE(fail(absl::AbortedError("no memory")).is_dropped());
  ASSERT_TRUE(fail(absl::InvalidArgumentError("no such token")).is_accepted());
  EXPECT_TRUE(fail(absl::InvalidArgumentError("no such token")).is_dropped());
  cluster.join(4);
  EXPECT_TRUE(cluster.coordination.members().at({1}).has_failed);
}

TEST(CoordinationElastic, WhoseStepsAreLongHasAsLongToQuiesce) {
  Cluster cluster(long_job());
  cluster.closed_are_dead = false;
  cluster.start();
  cluster.finish_step(0);
  cluster.now += 60'000'000;
  cluster.finish_step(1);
  cluster.lose(2);
  const uint64_t lost_us = cluster.now;
  while (cluster.now < lost_us + 100'000'000) {
    cluster.now += 1'000'000;
    cluster.decided(cluster.coordination.on_heartbeat({1}, {}, cluster.now));
    const CoordinatorDecisions told = cluster.decided(cluster.coordination.on_timer(cluster.now));
    if (find<DismissWorker>(told) == nullptr) continue;
    EXPECT_GT(cluster.now, lost_us + 59'000'000);
    EXPECT_NE(find<CheckListener>(told), nullptr) << "it lives, and is waited for";
    return;
  }
  FAIL() << "it is waited for without end";
}

TEST(CoordinationElastic, WhoseLinkBreaksAgainAndAgainIsNotWaitedForWithoutEnd) {
  ClosedLink cluster;
  for (PeerNumber peer = 10; peer < 60; ++peer) {
    cluster.now += 5'000'000;
    cluster.decided(cluster.coordination.on_heartbeat({1}, {}, cluster.now));
    CoordinatorDecisions told = cluster.join(peer, 2);
    append(told, cluster.lose(2));
    append(told, cluster.decided(cluster.coordination.on_timer(cluster.now)));
    ASSERT_EQ(find<EndRun>(told), nullptr);
    if (find<AssignPlan>(told) == nullptr) continue;
    EXPECT_GT(cluster.now, 150'000'000u) << "half of comm.init_timeout_seconds";
    return;
  }
  FAIL() << "the run neither goes on nor back";
}

TEST(CoordinationElastic, WhoseLinkBreaksTwiceInALongStepIsWaitedForTwice) {
  ClosedLink cluster;
  cluster.now += 8'000'000;
  cluster.join(7, 2);
  cluster.quiesced(2, {{5, kBack}});
  cluster.prepared(1);
  cluster.prepared(2);
  ASSERT_TRUE(cluster.coordination.is_training());
  cluster.now += 400'000'000;
  cluster.lose(2);
  const CoordinatorDecisions waits = cluster.quiesced(1, {{5, kFrontStage}, {0, {0, 6}}});
  EXPECT_EQ(find<AssignPlan>(waits), nullptr);
  ASSERT_NE(find<RunEvent>(waits), nullptr);
  EXPECT_EQ(find<RunEvent>(waits)->name, "run.waiting");
}

TEST(CoordinationElastic, PlansThatFailOneAfterTheOtherEndTheRun) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.finish_step(0);
  const uint64_t begun_us = cluster.now;
  while (cluster.now < begun_us + 1'000'000'000) {
    cluster.coordination.on_peer_failure({1}, {}, "its group does not form", cluster.now);
    const auto tick = [&] {
      cluster.now += kSecondUs;
      for (uint32_t id : {1, 2}) {
        cluster.decided(cluster.coordination.on_heartbeat({id}, {}, cluster.now));
      }
      return cluster.decided(cluster.coordination.on_timer(cluster.now));
    };
    const CoordinatorDecisions told = tick();
    if (const auto* end = find<EndRun>(told)) {
      EXPECT_GT(cluster.now, begun_us + 600'000'000);
      EXPECT_THAT(std::string(end->status.message()), HasSubstr("its group does not form"));
      EXPECT_EQ(end->status.code(), absl::StatusCode::kDeadlineExceeded);
      return;
    }
    cluster.quiesced(1, {{1, kFrontStage}});
    cluster.quiesced(2, {{1, kBack}});
    for (uint32_t id : {1, 2}) cluster.prepared(id);
    ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kTraining);
    for (int second = 0; second < 20; ++second) tick();
  }
  FAIL() << "plans are made without end";
}

TEST(CoordinationElastic, ALongValidationIsNoStandstill) {
  JobSpec job = long_job();
  job.validation.interval = 1;
  job.validation.batches = 400;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  WorkerActivity validates;
  validates.works = true;
  validates.action = "validation";
  validates.action_us = 1e6;
  for (int second = 0; second < 800; ++second) {
    cluster.now += 1'000'000;
    for (uint32_t id : {1, 2}) {
      cluster.decided(cluster.coordination.on_heartbeat({id}, validates, cluster.now));
    }
    const CoordinatorDecisions told = cluster.decided(cluster.coordination.on_timer(cluster.now));
    ASSERT_EQ(find<EndRun>(told), nullptr) << second;
    ASSERT_EQ(find<DismissWorker>(told), nullptr) << second;
  }
}

/// Two workers with a copy of the model each, of which one is lost, and too few are left.
struct PausedCluster : Cluster {
  explicit PausedCluster(bool saves) : Cluster(job(saves)) {
    start();
    finish_step(0);
    lose(2);
    const CoordinatorDecisions paused = quiesced(1, {{1, {0, 6}}});
    EXPECT_EQ(find<RunEvent>(paused)->name, "run.paused");
  }

 private:
  static JobSpec job(bool saves) {
    JobSpec job = long_job();
    job.parallelism.pipeline_parallel_degree = 1;
    job.parallelism.data_parallel_replicate_degree = 2;
    job.elastic.min_workers = 2;
    job.checkpoint.enable = saves;
    job.comm.init_timeout_seconds = 60;
    return job;
  }
};

TEST(CoordinationElastic, ASpareThatLeavesIsLetGoAtOnce) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.join(3);
  const CoordinatorDecisions told =
      cluster.decided(cluster.coordination.on_leave({3}, "SIGTERM", ++cluster.now));
  ASSERT_NE(find<StopWorker>(told), nullptr) << "no plan will be made for that";
  EXPECT_EQ(find<StopWorker>(told)->worker, WorkerId{3});
  EXPECT_EQ(find<QuiesceWorker>(cluster.finish_step(0)), nullptr);
}

TEST(CoordinationElastic, WhileTheRunIsPausedALeaverStaysUntilItsStateHasMoved) {
  PausedCluster cluster(false);
  const CoordinatorDecisions told =
      cluster.decided(cluster.coordination.on_leave({1}, "SIGTERM", ++cluster.now));
  EXPECT_EQ(find<StopWorker>(told), nullptr) << "nobody else holds step 1";
  for (PeerNumber peer : {7, 8}) cluster.join(peer);
  cluster.now += 400'000;
  ASSERT_NE(find<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), nullptr);
  cluster.quiesced(1, {{1, {0, 6}}});
  cluster.quiesced(3);
  const CoordinatorDecisions assigned = cluster.quiesced(4);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 1u);
  cluster.prepared(3);
  const CoordinatorDecisions started = cluster.prepared(4);
  ASSERT_NE(find<StopWorker>(started), nullptr);
  EXPECT_EQ(find<StopWorker>(started)->worker, WorkerId{1});
}

TEST(CoordinationElastic, APauseThatLastsTooLongEndsWithWhatIsHereSaved) {
  const auto wait = [](Cluster& cluster) {
    CoordinatorDecisions decisions;
    for (int second = 0; second < 61; ++second) {
      cluster.now += 1'000'000;
      cluster.coordination.on_heard({1}, cluster.now);
      append(decisions, cluster.coordination.on_timer(cluster.now));
    }
    return decisions;
  };
  PausedCluster saves(true);
  const CoordinatorDecisions saved = wait(saves);
  EXPECT_EQ(find<EndRun>(saved), nullptr);
  EXPECT_NE(find<QuiesceWorker>(saved), nullptr);
  const CoordinatorDecisions assigned = saves.quiesced(1, {{1, {0, 6}}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr) << "one worker is enough to save";
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 1u);
  PausedCluster does_not(false);
  ASSERT_NE(find<EndRun>(wait(does_not)), nullptr);
}

TEST(CoordinationElastic, ALeaverWorksOnWhileItIsNeeded) {
  JobSpec job = long_job();
  job.elastic.min_workers = 2;
  Cluster cluster(job);
  cluster.start();
  const CoordinatorDecisions asked =
      cluster.coordination.on_leave({2}, "SIGTERM", ++cluster.now).decisions();
  EXPECT_EQ(find<RunEvent>(asked)->name, "worker.leaving");
  cluster.coordination.on_peer_failure({1}, {}, "a link broke", ++cluster.now);
  cluster.now += 1'000'000;
  EXPECT_EQ(count<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), 2u);
  cluster.quiesced(1);
  const CoordinatorDecisions assigned = cluster.quiesced(2);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr) << "no pause";
  EXPECT_EQ(worker_count(find<AssignPlan>(assigned)->plan), 2);
  cluster.prepared(1);
  EXPECT_EQ(find<StopWorker>(cluster.prepared(2)), nullptr);
  // Now it can go.
  cluster.join(3);
  cluster.now += 1'000'000;
  cluster.coordination.on_timer(cluster.now);
  EXPECT_EQ(count<QuiesceWorker>(cluster.finish_step(0)), 3u);
}

TEST(CoordinationElastic, BelowTheMinimumItWaitsForWorkersAndGoesOn) {
  JobSpec job = long_job();
  job.elastic.min_workers = 2;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  cluster.lose(2);
  EXPECT_EQ(find<AssignPlan>(cluster.quiesced(1, {{1, kFrontStage}, {1, kBack}})), nullptr);
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  cluster.join(3);
  cluster.now += 1'000'000;
  const CoordinatorDecisions again = cluster.coordination.on_timer(cluster.now);
  EXPECT_EQ(count<QuiesceWorker>(again), 2u);
  cluster.quiesced(1, {{1, kFrontStage}, {1, kBack}});
  const CoordinatorDecisions assigned = cluster.quiesced(3);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 1u);
}

TEST(CoordinationElastic, AReconnectedWorkerKeepsItsNumber) {
  Cluster cluster(long_job());
  cluster.start();
  const CoordinatorDecisions back = cluster.join(7, 2);
  ASSERT_NE(find<WelcomeWorker>(back), nullptr);
  EXPECT_EQ(find<WelcomeWorker>(back)->worker, WorkerId{2});
  EXPECT_NE(find<DismissWorker>(back), nullptr) << "its old connection";
  EXPECT_EQ(cluster.coordination.members().size(), 2u);
}

TEST(CoordinationElastic, NothingIsDecidedWithoutWhoIsOnlyConnectingAnew) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.finish_step(0);
  cluster.coordination.on_peer_failure({1}, {}, "a link broke", ++cluster.now);
  cluster.now += 1'000'000;
  ASSERT_EQ(count<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), 2u);
  cluster.quiesced(1, {{1, kFrontStage}});
  const CoordinatorDecisions back = cluster.join(7, 2);
  EXPECT_EQ(find<AssignPlan>(back), nullptr) << "from step 0, as nobody else has the back stage";
  EXPECT_NE(find<QuiesceWorker>(back), nullptr);
  const CoordinatorDecisions assigned = cluster.quiesced(2, {{1, kBack}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 1u);
}

TEST(CoordinationElastic, AProcessThatConnectsAnewIsOneWorkerWhateverItsNumberWas) {
  Coordination::Options options;
  options.job = long_job();
  options.worker_count = 2;
  Coordination successor(options, 0);
  JoinRequest request{"host", 100, "127.0.0.1:1", "cpu x1", 1.0};
  request.previous = WorkerId{4};  // Another life gave it, whose numbers nobody knows here.
  successor.on_own_pause(7'000'000, 10);
  for (PeerNumber peer : {1, 2, 3}) successor.on_join(peer, request, 10 + peer);
  EXPECT_EQ(successor.members().size(), 1u);
  EXPECT_EQ(successor.members().begin()->first, WorkerId{1});
  EXPECT_EQ(successor.members().begin()->second.peer, 3u);
}

TEST(CoordinationElastic, ASuccessorGoesOnWhereTheJournalEndsWithALargerGeneration) {
  Coordination::Options options;
  options.job = long_job();
  options.worker_count = 2;
  options.term = 2;
  options.committed_steps = 5;
  options.generation = 3;
  Coordination successor(options, 0);
  auto join = [&](PeerNumber peer) {
    JoinRequest request{"host", 100, absl::StrCat("127.0.0.1:", peer), "cpu x1", 1.0};
    request.previous = WorkerId{static_cast<uint32_t>(peer)};
    request.generation = 4;  // One that was announced, and never journaled.
    return successor.on_join(peer, request, peer).decisions();
  };
  join(1);
  const CoordinatorDecisions all = join(2);
  ASSERT_NE(find<QuiesceWorker>(all), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(all)->generation, 5u);
  EXPECT_EQ(find<QuiesceWorker>(all)->committed_steps, 5u);
  successor.on_quiesced({1}, 5, {{5, kFrontStage}}, 10);
  const CoordinatorDecisions assigned = successor.on_quiesced({2}, 5, {{5, kBack}}, 11).decisions();
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 5u);
}

TEST(CoordinationElastic, PeerFailureWaitsForALossToExplainIt) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.coordination.on_peer_failure({1}, {}, "the data connection broke", ++cluster.now);
  EXPECT_EQ(find<QuiesceWorker>(cluster.coordination.on_timer(cluster.now + 1000)), nullptr);
  const CoordinatorDecisions quiesces = cluster.coordination.on_timer(cluster.now + 500'000);
  EXPECT_EQ(count<QuiesceWorker>(quiesces), 2u);
  const auto* event = find<RunEvent>(quiesces);
  ASSERT_NE(event, nullptr);
  EXPECT_THAT(event->text, HasSubstr("w1"));
  EXPECT_THAT(event->text, HasSubstr("the data connection broke"));
}

TEST(CoordinationElastic, WhatIsNoticedWhileThePlanIsPreparedIsNotForgottenWhenItStarts) {
  Cluster cluster(long_job());
  cluster.gather();
  cluster.prepared(1);
  cluster.decided(cluster.coordination.on_unreachable({1}, {2}, "in vain", ++cluster.now));
  ASSERT_NE(find<StartRun>(cluster.prepared(2)), nullptr);
  EXPECT_EQ(count<QuiesceWorker>(cluster.coordination.on_timer(cluster.now + 500'000)), 2u);
}

/// After the first step, when a peer failure is overdue; worker 3 has no part.
CoordinatorDecisions change_plan_with_spare(Cluster& cluster) {
  cluster.now += 500'000;
  EXPECT_EQ(count<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), 3u);
  cluster.quiesced(1, {{1, kFrontStage}});
  cluster.quiesced(2, {{1, kBack}});
  return cluster.quiesced(3);
}

TEST(CoordinationElastic, TwoThatCannotReachOneAnotherAreKeptApartAndNothingIsLost) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.finish_step(0);
  cluster.join(3);  // A spare.
  const CoordinatorDecisions told =
      cluster.decided(cluster.coordination.on_unreachable({2}, {1}, "in vain", ++cluster.now));
  ASSERT_NE(find<RunEvent>(told), nullptr);
  EXPECT_EQ(find<RunEvent>(told)->name, "link.unreachable");
  EXPECT_THAT(find<RunEvent>(told)->text, HasSubstr("w2"));
  EXPECT_THAT(find<RunEvent>(told)->text, HasSubstr("does not reach w1"));
  const CoordinatorDecisions assigned = change_plan_with_spare(cluster);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  const AssignPlan& order = *find<AssignPlan>(assigned);
  EXPECT_FALSE(are_neighbours(order.plan, {1}, {2}));
  EXPECT_EQ(order.restore.first_step, 1u);
  for (const LayerMove& move : order.restore.moves) {
    EXPECT_NE(pair_of(move.from, move.to), pair_of({1}, {2}));
  }
}

TEST(CoordinationElastic, ASpareBeyondTheMostWorkersTakesThePlaceOfOneThatIsNotReached) {
  JobSpec job = long_job();
  job.elastic.min_workers = job.elastic.max_workers = 2;
  Cluster cluster(std::move(job));
  cluster.start();
  cluster.finish_step(0);
  cluster.join(3);
  cluster.coordination.on_unreachable({2}, {1}, "in vain", ++cluster.now);
  const CoordinatorDecisions assigned = change_plan_with_spare(cluster);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  const AssignPlan& order = *find<AssignPlan>(assigned);
  EXPECT_EQ(order.restore.first_step, 1u);
  const std::set<WorkerId> workers = plan_workers(order.plan);
  EXPECT_EQ(workers.size(), 2u);
  EXPECT_TRUE(workers.contains({3}));
}

TEST(CoordinationElastic, WithoutAnotherWayTheLinkIsTriedOnceMoreBeforeStepsAreLost) {
  Cluster cluster(long_job());
  cluster.start();
  cluster.finish_step(0);
  uint64_t first_step = 1;
  for (const bool is_again : {false, true}) {
    cluster.coordination.on_unreachable({1}, {2}, "in vain", ++cluster.now);
    cluster.now += 500'000;
    for (uint32_t worker : {1, 2}) {
      cluster.coordination.on_heartbeat({worker}, {}, cluster.now);
    }
    EXPECT_EQ(count<QuiesceWorker>(cluster.coordination.on_timer(cluster.now)), 2u);
    cluster.quiesced(1, {{1, kFrontStage}});
    const CoordinatorDecisions assigned = cluster.quiesced(2, {{1, kBack}});
    ASSERT_NE(find<AssignPlan>(assigned), nullptr);
    const AssignPlan& order = *find<AssignPlan>(assigned);
    EXPECT_EQ(are_neighbours(order.plan, {1}, {2}), !is_again);
    first_step = order.restore.first_step;
    EXPECT_EQ(first_step, is_again ? 0u : 1u) << "one of them has to begin from the start";
    cluster.prepared(1);
    cluster.prepared(2);
  }
}

TEST(CoordinationElastic, NewProcessesThatDieAtOnceAreHeldBackByTheirHost) {
  JobSpec job = long_job();
  job.parallelism.pipeline_parallel_degree = 0;
  Cluster cluster(job);
  cluster.start();
  uint64_t held_us = 0;
  for (uint32_t peer = 3; peer < 7; ++peer) {
    cluster.now += 1'000'000;
    cluster.join(peer);
    held_us = cluster.coordination.members().at({peer}).eligible_us - cluster.now;
    EXPECT_EQ(held_us == 0, peer < 5) << peer;
    cluster.lose(peer);
  }
  EXPECT_EQ(held_us, 2'000'000u);
  cluster.now += 1'000'000;
  const CoordinatorDecisions joined = cluster.join(7);
  const auto held = std::find_if(joined.begin(), joined.end(), [](const auto& each) {
    const auto* event = std::get_if<RunEvent>(&each);
    return event != nullptr && event->name == "worker.held_back";
  });
  ASSERT_NE(held, joined.end());
  EXPECT_THAT(std::get<RunEvent>(*held).text,
              HasSubstr("host host is flapping; w7 may take part in 4 s"));
}

/// A step; then the device of worker 2 is stuck in the next one, until it is the culprit. Nobody
/// has a snapshot of its stage.
struct StuckDevice : Cluster {
  StuckDevice() : Cluster(impatient_job()) {
    start();
    finish_step(0);
    for (uint64_t stuck_us = 0; stuck_us < 10'000'000 && !find<DismissWorker>(lost);
         stuck_us += 200'000) {
      now += 200'000;
      coordination.on_heartbeat({1}, {1, "the input of 0B0", stuck_us, false}, now);
      coordination.on_heartbeat({2}, {1, "1F0", stuck_us, true}, now);
      lost = coordination.on_timer(now);
    }
  }
  static JobSpec impatient_job() {
    JobSpec job = long_job();
    job.elastic.heartbeat_timeout_seconds = 2;
    return job;
  }
  CoordinatorDecisions lost;
};

TEST(CoordinationElastic, AStuckDeviceIsTheCulpritOfAStuckStep) {
  StuckDevice cluster;
  ASSERT_NE(find<DismissWorker>(cluster.lost), nullptr);
  EXPECT_EQ(find<DismissWorker>(cluster.lost)->worker, WorkerId{2});
  EXPECT_THAT(find<RunEvent>(cluster.lost)->text, HasSubstr("works on 1F0"));
}

TEST(CoordinationElastic, ACulpritThatIsBackHasWhatNobodyElseHolds) {
  StuckDevice cluster;
  const CoordinatorDecisions waits = cluster.quiesced(1, {{1, kFrontStage}});
  EXPECT_EQ(find<AssignPlan>(waits), nullptr);
  ASSERT_NE(find<RunEvent>(waits), nullptr);
  EXPECT_EQ(find<RunEvent>(waits)->name, "run.waiting");
  cluster.join(7, 2);
  const CoordinatorDecisions assigned = cluster.quiesced(2, {{1, kBack}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 1u);
}

TEST(CoordinationElastic, ACulpritIsNotWaitedForForEver) {
  StuckDevice cluster;
  cluster.quiesced(1, {{1, kFrontStage}});
  for (const bool is_over : {false, true}) {
    cluster.now += is_over ? 1'000'000 : 4'000'000;  // A lease and 2.5 s.
    cluster.coordination.on_heartbeat({1}, {}, cluster.now);
    const CoordinatorDecisions found = cluster.answered(cluster.coordination.on_timer(cluster.now));
    ASSERT_EQ(find<AssignPlan>(found) != nullptr, is_over);
    if (!is_over) continue;
    EXPECT_EQ(find<AssignPlan>(found)->restore.first_step, 0u);
  }
}

TEST(CoordinationElastic, AStopDuringAChangeSavesWhatItFinds) {
  JobSpec job = long_job();
  job.checkpoint.enable = true;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  cluster.lose(2);
  EXPECT_EQ(find<EndRun>(cluster.coordination.on_stop_request("Ctrl-C", cluster.now).decisions()),
            nullptr);
  cluster.quiesced(1, {{1, kFrontStage}, {1, kBack}});
  const CoordinatorDecisions started = cluster.prepared(1);
  ASSERT_NE(find<StartRun>(started), nullptr);
  EXPECT_TRUE(find<StartRun>(started)->order.last);
  EXPECT_TRUE(find<StartRun>(started)->order.checkpoint);
  EXPECT_EQ(find<EndRun>(started), nullptr);
  cluster.coordination.on_shard_saved({1}, 0, 1, absl::OkStatus(), ++cluster.now);
  EXPECT_NE(
      find<EndRun>(cluster.coordination.on_checkpoint_completed(1, absl::OkStatus(), ++cluster.now)
                       .decisions()),
      nullptr);
}

TEST(CoordinationElastic, AStopWhileWorkersAreWaitedForSavesWhatIsHere) {
  JobSpec job = long_job();
  job.checkpoint.enable = true;
  job.elastic.min_workers = 2;
  for (const bool is_whole : {true, false}) {
    Cluster cluster(job);
    cluster.start();
    cluster.finish_step(0);
    std::vector<InventoryItem> held = {{1, kFrontStage}};
    if (is_whole) held.push_back({1, kBack});
    cluster.lose(2);
    cluster.quiesced(1, held);
    ASSERT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
    const CoordinatorDecisions stopping =
        cluster.decided(cluster.coordination.on_stop_request("Ctrl-C", ++cluster.now));
    ASSERT_NE(find<QuiesceWorker>(stopping), nullptr);
    const CoordinatorDecisions found = cluster.quiesced(1, held);
    EXPECT_EQ(find<AssignPlan>(found) != nullptr, is_whole);
    EXPECT_EQ(find<EndRun>(found) != nullptr, !is_whole) << "and no step is taken back";
    if (!is_whole) continue;
    EXPECT_TRUE(find<StartRun>(cluster.prepared(1))->order.checkpoint);
  }
}

TEST(CoordinationElastic, TheLastCheckpointIsOrderedAgainWhenItWasCutOff) {
  JobSpec job = small_job();
  job.training.steps = 1;
  job.checkpoint.enable = true;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  cluster.coordination.on_shard_saved({1}, 0, 1, absl::OkStatus(), ++cluster.now);
  EXPECT_NE(find<QuiesceWorker>(cluster.lose(2)), nullptr) << "stage 1 was not saved";
  cluster.quiesced(1, {{1, kFrontStage}, {1, kBack}});
  const CoordinatorDecisions started = cluster.prepared(1);
  EXPECT_TRUE(find<StartRun>(started)->order.checkpoint);
  EXPECT_TRUE(find<StartRun>(started)->order.last);
}

TEST(CoordinationElastic, ARunThatIsSavedNeedsNobodyToEnd) {
  JobSpec job = small_job();
  job.training.steps = 1;
  job.checkpoint.enable = true;
  job.elastic.min_workers = 2;
  Cluster cluster(job);
  cluster.start();
  cluster.finish_step(0);
  for (int32_t stage : {0, 1}) {
    const WorkerId leader{static_cast<uint32_t>(stage) + 1};
    cluster.coordination.on_shard_saved(leader, stage, 1, absl::OkStatus(), ++cluster.now);
  }
  cluster.lose(2);
  cluster.quiesced(1, {{1, kFrontStage}});
  EXPECT_NE(cluster.coordination.phase(), Coordination::Phase::kEnded);
  const CoordinatorDecisions ended = cluster.decided(
      cluster.coordination.on_checkpoint_completed(1, absl::OkStatus(), ++cluster.now));
  ASSERT_NE(find<EndRun>(ended), nullptr);
  EXPECT_TRUE(find<EndRun>(ended)->status.ok());
  EXPECT_FALSE(find<EndRun>(ended)->stopped_early);
}

}  // namespace
}  // namespace skein::plans
