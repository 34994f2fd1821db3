// What a coordinator that was restarted makes of workers that come back, and of new ones.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "plans/base/units.hpp"
#include "plans/coordinator/coordination.hpp"
#include "plans/plan/layout_plan.hpp"
#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

constexpr int32_t kWorkers = 3;

JobSpec job_of_three() {
  JobSpec job;
  job.model.layers = 6;
  job.training.steps = 100;
  job.training.micro_batch_size = 2;
  job.training.global_batch_size = 4;
  job.parallelism.pipeline_parallel_degree = kWorkers;
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  return job;
}

/// A coordinator whose last life had a plan for workers 1, 2, 3, and was told to start with one.
struct Restarted {
  using Earlier = std::map<WorkerId, uint64_t>;
  explicit Restarted(JobSpec job = job_of_three(), Earlier earlier_workers = {},
                     uint64_t unread_step = 0) {
    Coordination::Options options;
    options.last_plan = *make_layout_plan(job_of_three(), {{1}, {2}, {3}}, 4);
    options.job = std::move(job);
    options.worker_count = 1;
    options.earlier_workers = std::move(earlier_workers);
    options.committed_steps = 7;
    options.committed_loss = 2.5;
    options.generation = 4;
    options.run = "small-1";
    options.config_digest = 11;
    options.durable_step = unread_step;
    options.is_verified = unread_step == 0;
    coordination.emplace(std::move(options), 0);
  }
  CoordinatorDecisions join(PeerNumber peer, uint32_t process, uint32_t previous,
                            uint64_t now_us = kSecondUs) {
    return coordination
        ->on_join(
            peer,
            {"host", process, "127.0.0.1:1", "cpu x1", 1.0, WorkerId{previous}, 4, run, digest},
            now_us)
        .decisions();
  }
  Coordination::Phase phase() const { return coordination->phase(); }

  std::string run = "small-1";  // That the next joiner serves.
  uint64_t digest = 0;          // Its configuration's.
  std::optional<Coordination> coordination;
};

TEST(CoordinatorRestart, WaitsForAllWorkersThatMayHoldState) {
  Restarted cluster;
  EXPECT_EQ(find<QuiesceWorker>(cluster.join(1, 11, 1)), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(cluster.join(2, 12, 2)), nullptr);
  EXPECT_NE(find<QuiesceWorker>(cluster.join(3, 13, 3)), nullptr);
  EXPECT_EQ(cluster.phase(), Coordination::Phase::kQuiescing);
}

TEST(CoordinatorRestart, ALeaverStaysUntilTheOthersAreBackAndWhoHasNothingGoes) {
  Restarted cluster;
  cluster.join(1, 11, 1);
  const CoordinatorDecisions told =
      cluster.coordination->on_leave({1}, "SIGTERM", kSecondUs).decisions();
  EXPECT_EQ(find<StopWorker>(told), nullptr) << "it may hold what nobody else has";
  const CoordinatorDecisions joined = cluster.join(4, 14, 0);
  const WorkerId newcomer = find<WelcomeWorker>(joined)->worker;
  const CoordinatorDecisions left =
      cluster.coordination->on_leave(newcomer, "SIGTERM", kSecondUs).decisions();
  ASSERT_NE(find<StopWorker>(left), nullptr);
  EXPECT_EQ(find<StopWorker>(left)->worker, newcomer);
}

TEST(CoordinatorRestart, ALeaverStaysUntilTheCheckpointOfItsStateHasBeenRead) {
  for (const uint64_t whole_step : {7, 4}) {  // It is whole, or damaged: an older one is.
    Restarted cluster(job_of_three(), {}, /*unread_step=*/7);
    cluster.join(1, 11, 1);
    EXPECT_EQ(
        find<StopWorker>(cluster.coordination->on_leave({1}, "SIGTERM", kSecondUs).decisions()),
        nullptr);
    CheckpointVerdict verdict;
    verdict.step = whole_step;
    const CoordinatorDecisions read =
        cluster.coordination->on_checkpoint_verified(verdict, kSecondUs).decisions();
    EXPECT_EQ(find<StopWorker>(read) != nullptr, whole_step == 7);
  }
}

TEST(CoordinatorRestart, GoesOnWithoutThoseThatDoNotComeBack) {
  Restarted cluster;
  cluster.join(1, 11, 1);
  EXPECT_EQ(find<QuiesceWorker>(cluster.coordination->on_timer(3 * kSecondUs)), nullptr);
  EXPECT_NE(find<QuiesceWorker>(cluster.coordination->on_timer(6 * kSecondUs)), nullptr);
}

TEST(CoordinatorRestart, WaitsForTheLeaseOfWhoMayHoldNewerState) {
  Restarted cluster;  // With a lease of ten seconds.
  cluster.join(1, 11, 1);
  cluster.join(2, 12, 2);
  cluster.coordination->on_timer(4 * kSecondUs);
  const uint64_t generation = cluster.coordination->generation();
  const uint64_t committed_in = cluster.coordination->generation_of(7);
  cluster.coordination->on_quiesced({1}, generation, {{7, {0, 3}, committed_in}}, 4 * kSecondUs);
  const CoordinatorDecisions waits =
      cluster.coordination->on_quiesced({2}, generation, {{7, {3, 5}, committed_in}}, 4 * kSecondUs)
          .decisions();
  ASSERT_NE(find<RunEvent>(waits), nullptr);
  EXPECT_EQ(find<RunEvent>(waits)->name, "run.waiting");
  EXPECT_EQ(find<RunEvent>(waits)->fields.at("workers"), "w3");
  EXPECT_EQ(find<AssignPlan>(waits), nullptr);
  EXPECT_TRUE(cluster.coordination->on_timer(10 * kSecondUs).empty()) << "said once";
  EXPECT_NE(find<QuiesceWorker>(cluster.join(3, 13, 3, 11 * kSecondUs)), nullptr);
  const CoordinatorDecisions assigned =
      cluster.coordination
          ->on_quiesced({3}, cluster.coordination->generation(), {{7, {5, 8}, committed_in}},
                        11 * kSecondUs)
          .decisions();
  ASSERT_EQ(cluster.coordination->generation(), generation);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 7u);
}

TEST(CoordinatorRestart, WhereNobodyThereCanReadTheInputTheRunEndsAtOnce) {
  Restarted run;
  for (uint32_t id : {1, 2, 3}) run.join(id, 100 + id, id);
  for (uint32_t id : {1, 2, 3}) {
    run.coordination->on_worker_failed({id}, absl::DataLossError("a bad token"), kSecondUs);
  }
  CoordinatorDecisions told;
  for (uint64_t second = 2; second < 8; ++second) {
    for (uint32_t id : {1, 2, 3}) run.coordination->on_heartbeat({id}, {}, second * kSecondUs);
    append(told, run.coordination->on_timer(second * kSecondUs));
    for (uint32_t id : {1, 2, 3}) {
      const auto quiesced = run.coordination->on_quiesced({id}, run.coordination->generation(), {},
                                                          second * kSecondUs);
      append(told, CoordinatorOutcome(quiesced).decisions());
    }
  }
  ASSERT_NE(find<EndRun>(told), nullptr);
  EXPECT_EQ(find<EndRun>(told)->status.code(), absl::StatusCode::kDataLoss);
}

TEST(CoordinatorRestart, WhereNobodyHasTheMemoryToMeasureTheRunIsPaused) {
  JobSpec job = job_of_three();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  Restarted run(job);
  for (uint32_t id : {1, 2, 3}) run.join(id, 100 + id, id);
  ASSERT_EQ(run.phase(), Coordination::Phase::kProfiling);
  for (uint32_t id : {1, 2, 3}) {
    run.coordination->on_worker_failed({id}, absl::ResourceExhaustedError("full"), kSecondUs);
  }
  std::string paused;
  for (uint64_t second = 2; second < 8 && paused.empty(); ++second) {
    for (uint32_t id : {1, 2, 3}) run.coordination->on_heartbeat({id}, {}, second * kSecondUs);
    (void)run.coordination->on_timer(second * kSecondUs);
    for (uint32_t id : {1, 2, 3}) {
      CoordinatorOutcome quiesced = run.coordination->on_quiesced(
          {id}, run.coordination->generation(), {}, second * kSecondUs);
      for (const CoordinatorDecision& each : std::move(quiesced).decisions()) {
        const auto* event = std::get_if<RunEvent>(&each);
        if (event != nullptr && event->name == "run.paused") paused = event->text;
      }
    }
  }
  EXPECT_FALSE(paused.empty()) << "it waits for nobody, without a word";
}

/// It may say any number: only who is of the run is one of those that are waited for.
TEST(CoordinatorRestart, AStrangerTakesNobodysPlace) {
  Restarted cluster;
  cluster.join(1, 11, 1);
  cluster.join(2, 12, 2);
  cluster.run = "";
  const CoordinatorDecisions joined = cluster.join(3, 99, 3);
  EXPECT_NE(find<WelcomeWorker>(joined)->worker, WorkerId{3});
  EXPECT_EQ(cluster.phase(), Coordination::Phase::kGathering) << "w3 is waited for";
  cluster.run = "small-1";
  EXPECT_EQ(find<WelcomeWorker>(cluster.join(4, 13, 3))->worker, WorkerId{3});
  EXPECT_EQ(cluster.phase(), Coordination::Phase::kQuiescing);
}

/// Exit codes say whether something is saved.
TEST(CoordinatorRestart, AStopSaysWhetherAllIsKeptThatWorkersHold) {
  JobSpec job = job_of_three();
  job.checkpoint.enable = true;
  Restarted cluster(job);
  cluster.join(1, 11, 1);
  CoordinatorDecisions ended =
      cluster.coordination->on_stop_request("a signal", 2 * kSecondUs).decisions();
  for (uint64_t second = 3; second < 120 && !find<EndRun>(ended); ++second) {
    ended = cluster.coordination->on_timer(second * kSecondUs);
  }
  ASSERT_NE(find<StopWorkers>(ended), nullptr);
  EXPECT_TRUE(find<StopWorkers>(ended)->keeps_state) << "w1 writes what it has";
  EXPECT_FALSE(find<StopWorkers>(ended)->is_whole) << "w2 and w3 never came";
}

TEST(CoordinatorRestart, AStopWaitsForWhoMayHoldNewerState) {
  JobSpec job = job_of_three();
  job.checkpoint.enable = true;
  Restarted cluster(job);
  cluster.join(1, 11, 1);
  cluster.join(2, 12, 2);
  cluster.coordination->on_timer(4 * kSecondUs);
  const uint64_t committed_in = cluster.coordination->generation_of(7);
  const auto quiesced = [&](uint32_t worker, LayerRange layers, uint64_t now_us) {
    return cluster.coordination
        ->on_quiesced({worker}, cluster.coordination->generation(), {{7, layers, committed_in}},
                      now_us)
        .decisions();
  };
  quiesced(1, {0, 3}, 4 * kSecondUs);
  quiesced(2, {3, 5}, 4 * kSecondUs);
  const CoordinatorDecisions stopping =
      cluster.coordination->on_stop_request("a signal", 5 * kSecondUs).decisions();
  EXPECT_EQ(find<EndRun>(stopping), nullptr) << "w3 may come back with its layers";
  EXPECT_EQ(find<EndRun>(cluster.coordination->on_timer(6 * kSecondUs)), nullptr);
  cluster.join(3, 13, 3, 7 * kSecondUs);
  const CoordinatorDecisions assigned = quiesced(3, {5, 8}, 7 * kSecondUs);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr) << "to be saved";
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 7u);
  const uint64_t generation = cluster.coordination->generation();
  for (uint32_t worker : {1, 2, 3}) {
    cluster.coordination->on_prepared({worker}, generation, 8 * kSecondUs);
  }
  CoordinatorDecisions saved;
  for (int32_t stage = 0; stage < kWorkers; ++stage) {
    const WorkerId writer{static_cast<uint32_t>(stage) + 1};
    append(saved,
           cluster.coordination->on_shard_saved(writer, stage, 7, absl::OkStatus(), 9 * kSecondUs)
               .decisions());
  }
  ASSERT_NE(find<CompleteCheckpoint>(saved), nullptr);
  EXPECT_EQ(find<CompleteCheckpoint>(saved)->loss, 2.5) << "the journal's, though no step was done";
}

TEST(CoordinatorRestart, AStopWaitsForOthersWhereWhoIsHereHasNoMemoryForAll) {
  JobSpec job = job_of_three();
  job.checkpoint.enable = true;
  Restarted cluster(job);
  cluster.join(1, 11, 1);
  const uint64_t committed_in = cluster.coordination->generation_of(7);
  const auto quiesced = [&](uint32_t worker, std::vector<InventoryItem> held, uint64_t now_us) {
    return cluster.coordination
        ->on_quiesced({worker}, cluster.coordination->generation(), std::move(held), now_us)
        .decisions();
  };
  const std::vector<InventoryItem> all = {{7, {0, 8}, committed_in}};
  cluster.coordination->on_stop_request("a signal", 2 * kSecondUs);
  ASSERT_NE(find<AssignPlan>(quiesced(1, all, 2 * kSecondUs)), nullptr) << "to be saved";
  cluster.coordination->on_worker_failed({1}, absl::AbortedError("no memory"), 3 * kSecondUs);
  EXPECT_EQ(find<EndRun>(quiesced(1, all, 3 * kSecondUs)), nullptr) << "w2 and w3 may come back";
  const CoordinatorDecisions waiting = cluster.coordination->on_timer(4 * kSecondUs);
  EXPECT_EQ(find<EndRun>(waiting), nullptr);
  EXPECT_EQ(find<QuiesceWorker>(waiting), nullptr) << "nothing is new";
  cluster.join(2, 12, 2, 5 * kSecondUs);
  quiesced(1, all, 5 * kSecondUs);
  const CoordinatorDecisions assigned = quiesced(2, {}, 5 * kSecondUs);
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(plan_workers(find<AssignPlan>(assigned)->plan).size(), 2u);
}

/// Who was lost and is back when the coordinator dies has older state, and is in no plan.
TEST(CoordinatorRestart, BeforeARollbackThoseOfEarlierPlansAreWaitedForAsWell) {
  for (const bool was_there : {false, true}) {
    Restarted cluster(job_of_three(),
                      was_there ? Restarted::Earlier{{{9}, 3}} : Restarted::Earlier());
    for (uint32_t worker : {1, 2, 3}) cluster.join(worker, 10 + worker, worker);
    ASSERT_EQ(cluster.phase(), Coordination::Phase::kQuiescing);
    CoordinatorDecisions assigned;
    for (uint32_t worker : {1, 2, 3}) {
      assigned = cluster.coordination
                     ->on_quiesced({worker}, cluster.coordination->generation(), {}, kSecondUs)
                     .decisions();
    }
    EXPECT_EQ(find<AssignPlan>(assigned) == nullptr, was_there) << "nobody has step 7";
  }
}

TEST(CoordinatorRestart, ARollbackComesWithItsProof) {
  Restarted cluster;
  cluster.join(1, 11, 1);
  cluster.coordination->on_timer(4 * kSecondUs);
  cluster.coordination->on_quiesced({1}, cluster.coordination->generation(), {{7, {0, 3}, 0}},
                                    4 * kSecondUs);
  // Others heartbeat; only time passes.
  cluster.coordination->on_heartbeat({1}, {}, 12 * kSecondUs);
  const CoordinatorDecisions decisions = cluster.coordination->on_timer(13 * kSecondUs);
  const RunEvent* rollback = nullptr;
  for (const CoordinatorDecision& decision : decisions) {
    const auto* event = std::get_if<RunEvent>(&decision);
    if (event && event->name == "run.rolled_back") rollback = event;
  }
  ASSERT_NE(rollback, nullptr);
  EXPECT_NE(rollback->fields.at("held").find("w1 holds layers 0 to 2"), std::string::npos);
  EXPECT_NE(rollback->fields.at("absent").find("w3: "), std::string::npos);
}

TEST(CoordinatorRestart, DoesNotWaitForWorkersThatDiedWithTheirParent) {
  Coordination::Options options;
  options.job = job_of_three();
  options.last_plan = *make_layout_plan(job_of_three(), {{1}, {2}, {3}}, 4);
  options.awaits_last_workers = false;
  options.worker_count = 1;
  options.committed_steps = 7;
  options.generation = 4;
  Coordination coordination(std::move(options), 0);
  for (uint32_t n = 1; n <= 3; ++n) {
    coordination.on_join(n, {"host", n, "127.0.0.1:1", "cpu x1", 1.0, {}, 0}, kSecondUs);
  }
  CoordinatorDecisions decisions;
  const std::map<WorkerId, Member> members = coordination.members();
  for (const auto& [worker, member] : members) {
    decisions =
        coordination.on_quiesced(worker, coordination.generation(), {}, kSecondUs).decisions();
  }
  EXPECT_NE(find<AssignPlan>(decisions), nullptr);
}

TEST(CoordinatorRestart, WhoComesAndGoesDoesNotHoldOffTheTimeOut) {
  JobSpec job = job_of_three();
  job.comm.init_timeout_seconds = 30;
  Coordination::Options options;
  options.job = job;
  options.worker_count = 3;
  Coordination coordination(std::move(options), 0);
  CoordinatorDecisions decisions;
  for (uint32_t second = 1; second <= 40 && !find<EndRun>(decisions); ++second) {
    coordination.on_join(second, {"host", 5, "127.0.0.1:1", "cpu x1", 1.0, {1}, 0},
                         second * kSecondUs);
    coordination.on_worker_lost({1}, absl::UnavailableError("closed"), second * kSecondUs + 1);
    decisions = coordination.on_timer(second * kSecondUs + 2);
  }
  EXPECT_NE(find<EndRun>(decisions), nullptr);
}

TEST(CoordinatorRestart, ANewWorkerGetsNoNumberOfOneThatMayComeBack) {
  Restarted cluster;
  EXPECT_EQ(find<WelcomeWorker>(cluster.join(1, 21, 0))->worker, WorkerId{4});
  const CoordinatorDecisions decisions = cluster.join(2, 11, 1);
  EXPECT_EQ(find<DismissWorker>(decisions), nullptr);
  ASSERT_NE(find<WelcomeWorker>(decisions), nullptr);
  EXPECT_EQ(find<WelcomeWorker>(decisions)->worker, WorkerId{1});
  EXPECT_EQ(cluster.coordination->members().size(), 2u);
}

TEST(CoordinatorRestart, AnOldWorkerDoesNotPushOutOneThatHasItsNumber) {
  Restarted cluster;
  cluster.join(1, 21, 1);  // It says so, and is another process.
  const CoordinatorDecisions decisions = cluster.join(2, 11, 1);
  EXPECT_EQ(find<DismissWorker>(decisions), nullptr);
  EXPECT_EQ(find<WelcomeWorker>(decisions)->worker, WorkerId{4});
  EXPECT_EQ(cluster.coordination->members().size(), 2u);
}

/// The life that gave it the number had no plan, and the next one gave it to another worker.
TEST(CoordinatorRestart, WhoHasSeenNoPlanWithItsNumberIsNotTheOneThatIsWaitedFor) {
  Restarted cluster(job_of_three(), {{{1}, 3}, {{2}, 5}, {{3}, 3}});  // The joiners have seen 4.
  EXPECT_EQ(find<WelcomeWorker>(cluster.join(1, 12, 2))->worker, WorkerId{4});
  cluster.join(2, 11, 1);
  EXPECT_EQ(find<QuiesceWorker>(cluster.join(3, 13, 3)), nullptr) << "w2 may hold state";
}

TEST(CoordinatorRestart, ANumberThatNoPlanHadIsGivenBackAndToNobodyElse) {
  Restarted cluster;
  EXPECT_EQ(find<WelcomeWorker>(cluster.join(1, 15, 5))->worker, WorkerId{5});
  EXPECT_EQ(find<WelcomeWorker>(cluster.join(2, 16, kWorkerIdMax))->worker, WorkerId{kWorkerIdMax});
  EXPECT_EQ(find<WelcomeWorker>(cluster.join(3, 21, 0))->worker, WorkerId{4});
  EXPECT_EQ(find<WelcomeWorker>(cluster.join(4, 22, 0))->worker, WorkerId{6});
}

TEST(CoordinatorRestart, AWorkerThatConnectsAnewReplacesItself) {
  Restarted cluster;
  cluster.join(1, 11, 1);
  const CoordinatorDecisions decisions = cluster.join(2, 11, 1);
  ASSERT_NE(find<DismissWorker>(decisions), nullptr);
  EXPECT_EQ(find<WelcomeWorker>(decisions)->worker, WorkerId{1});
  EXPECT_EQ(cluster.coordination->members().size(), 1u);
}

TEST(CoordinatorRestart, MeasuresWhoeverIsBackWhenThePlannerIsToChoose) {
  JobSpec job = job_of_three();
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  Restarted cluster(job);
  cluster.join(1, 11, 1);
  EXPECT_NE(find<RequestProfile>(cluster.coordination->on_timer(6 * kSecondUs)), nullptr);
  EXPECT_EQ(cluster.phase(), Coordination::Phase::kProfiling);
}

TEST(CoordinatorRestart, AWorkerOfAnotherRunIsRefusedByNameAndToldOnce) {
  Restarted cluster;
  cluster.run = "other-2";
  for (PeerNumber peer : {1, 2}) {
    const CoordinatorDecisions decisions = cluster.join(peer, 11, 1);
    ASSERT_NE(find<RefusePeer>(decisions), nullptr);
    EXPECT_EQ(find<RefusePeer>(decisions)->reason,
              "this worker serves run other-2, here is run small-1");
    EXPECT_EQ(find<RefusePeer>(decisions)->run, "small-1");
    EXPECT_EQ(find<WelcomeWorker>(decisions), nullptr);
    EXPECT_EQ(find<RunEvent>(decisions) != nullptr, peer == 1) << "it asks again and again";
  }
  EXPECT_TRUE(cluster.coordination->members().empty());
  cluster.run = "small-1";
  EXPECT_NE(find<WelcomeWorker>(cluster.join(3, 12, 1)), nullptr);
}

TEST(CoordinatorRestart, AWorkerWithAnOlderConfigurationIsTakenInAndSaid) {
  Restarted cluster;
  cluster.run = "small-1";
  for (const auto& [peer, digest] : std::map<PeerNumber, uint64_t>{{1, 0}, {2, 11}, {3, 10}}) {
    cluster.digest = digest;
    int said = 0;
    for (const CoordinatorDecision& each : cluster.join(peer, 10 + peer, 0)) {
      const auto* event = std::get_if<RunEvent>(&each);
      said += event != nullptr && event->name == "worker.reconfigured" ? 1 : 0;
    }
    EXPECT_EQ(said, digest == 10 ? 1 : 0) << digest;
  }
}

}  // namespace
}  // namespace skein::plans
