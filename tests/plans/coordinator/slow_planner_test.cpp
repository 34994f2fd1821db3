// What the coordination does while the planner thinks, for as long as several leases.

#include <gtest/gtest.h>

#include <utility>

#include "plans/coordinator/planner_requests.hpp"
#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

constexpr LayerRange kAll{0, 6};
constexpr uint64_t kLeaseUs = 2'000'000;

JobSpec planned_job() {
  JobSpec job = small_job();
  job.training.steps = 100;
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  job.elastic.heartbeat_timeout_seconds = kLeaseUs * 1e-6;
  return job;
}

/// Workers whose plan the planner chooses; it answers when the test says so.
struct PlannedCluster : Cluster {
  /// `bytes`: of each worker's memory; 0: enough for everything.
  explicit PlannedCluster(uint32_t count, int64_t bytes = 0)
      : Cluster(planned_job(), count), memory_bytes(bytes) {
    plans_at_once = false;
    for (uint32_t id = 1; id <= count; ++id) join(id);
    for (uint32_t id = 1; id <= count; ++id) measure(id);
  }
  CoordinatorDecisions measure(uint32_t worker, double flops_per_second = 1e9) {
    return noted(profiled(worker, planned_job(), flops_per_second, memory_bytes));
  }
  /// Remembers what the planner is asked.
  CoordinatorDecisions noted(CoordinatorDecisions decisions) {
    for (const CoordinatorDecision& each : decisions) {
      if (const auto* request = std::get_if<RequestPlan>(&each)) asked.push_back(*request);
    }
    return decisions;
  }
  CoordinatorDecisions noted(CoordinatorOutcome outcome) {
    return noted(decided(std::move(outcome)));
  }
  CoordinatorDecisions quiesce(uint32_t worker, std::vector<InventoryItem> inventory = {}) {
    return noted(quiesced(worker, std::move(inventory)));
  }
  CoordinatorOutcome answer_last() {
    const RequestPlan request = asked.back();
    return coordination.on_plan_ready({request.id, answer(*request.question), 0}, ++now);
  }
  /// Heartbeats of all members, and a tick, until `us` have passed. Returns what was decided.
  CoordinatorDecisions wait(uint64_t us) {
    CoordinatorDecisions all;
    for (const uint64_t end = now + us; now < end; now += 200'000) {
      for (const auto& [id, member] : std::map(coordination.members())) {
        EXPECT_TRUE(coordination.on_heartbeat(id, {}, now).is_accepted());
      }
      append(all, noted(coordination.on_timer(now)));
      coordination.check_invariants();
    }
    return all;
  }
  /// Until the first plan is in force.
  void run_first_plan(uint32_t count) {
    for (uint32_t id = 1; id <= count; ++id) quiesce(id);
    noted(answer_last());
    for (uint32_t id = 1; id <= count; ++id) noted(prepared(id));
    ASSERT_EQ(coordination.phase(), Coordination::Phase::kTraining);
  }

  int64_t memory_bytes = 0;
  std::vector<RequestPlan> asked;
};

/// The least memory of each worker with which that many of them can train with the job's own
/// micro-batches, to within a tenth.
int64_t memory_for(uint32_t count) {
  for (int64_t bytes = 1 << 16;; bytes += bytes / 10) {
    PlannedCluster cluster(count, bytes);
    for (uint32_t id = 1; id <= count; ++id) cluster.quiesce(id);
    const CoordinatorOutcome answered = cluster.answer_last();
    const auto* assigned = find<AssignPlan>(answered.decisions());
    const int64_t own_rows = planned_job().training.micro_batch_size;
    if (assigned != nullptr && assigned->plan.microbatch_rows >= own_rows) return bytes;
  }
}

TEST(SlowPlanner, WhereAllAreToLeaveThePlanIsMadeWithThem) {
  Cluster cluster(planned_job());
  cluster.plans_at_once = false;
  for (uint32_t id : {1, 2}) cluster.join(id);
  for (uint32_t id : {1, 2}) cluster.coordination.on_leave({id}, "SIGTERM", ++cluster.now);
  cluster.profiled(1, planned_job());
  const auto measured = cluster.profiled(2, planned_job());
  EXPECT_NE(find<QuiesceWorker>(measured.decisions()), nullptr);
}

TEST(SlowPlanner, WhoNeverMeasuresIsLostBeforeTheRunIsGivenUp) {
  JobSpec job = planned_job();
  job.comm.init_timeout_seconds = 60;
  Cluster cluster(job);
  for (uint32_t id : {1, 2}) cluster.join(id);
  for (int second = 0; second < 60; ++second) {
    (void)cluster.profiled(2, job);  // When it is asked.
    cluster.now += 1'000'000;
    for (uint32_t id : {1, 2}) cluster.coordination.on_heard({id}, cluster.now);
    const CoordinatorDecisions decisions = cluster.coordination.on_timer(cluster.now);
    ASSERT_EQ(find<EndRun>(decisions), nullptr);
    if (find<DismissWorker>(decisions) == nullptr) continue;
    EXPECT_EQ(find<DismissWorker>(decisions)->worker, WorkerId{1});
    return;
  }
  FAIL() << "nobody is lost";
}

/// A resumed run that needs both of its workers: the one that is back waits for the other one.
TEST(SlowPlanner, ALackOfMemoryInALaterLifeWaitsForMoreWorkers) {
  for (const uint64_t committed : {0, 7}) {
    Coordination::Options options;
    options.job = planned_job();
    options.worker_count = 1;
    options.committed_steps = committed;
    Cluster cluster(std::move(options));
    cluster.join(1, 1);
    cluster.decided(cluster.profiled(1, planned_job(), 1e9, /*memory=*/1000));
    const CoordinatorDecisions quiesced = cluster.quiesced(1);
    EXPECT_EQ(find<EndRun>(quiesced) != nullptr, committed == 0);
  }
}

/// One that was asked for is gone before there is a plan, and the others lack memory.
TEST(SlowPlanner, ALackOfMemoryOfFewerThanWereAskedForWaitsForMore) {
  PlannedCluster cluster(2, memory_for(2));
  cluster.quiesce(1);
  cluster.noted(cluster.lose(2));
  const CoordinatorDecisions paused = cluster.noted(cluster.answer_last());
  EXPECT_EQ(find<EndRun>(paused), nullptr);
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kGathering);
  cluster.noted(cluster.join(3));
  cluster.measure(3);
  cluster.wait(1'000'000);
  for (uint32_t id : {1, 3}) cluster.quiesce(id);
  EXPECT_NE(find<AssignPlan>(cluster.answer_last().decisions()), nullptr);
}

/// "No plan" says nothing of who has come while the planner thought.
TEST(SlowPlanner, WhereNoPlanFitsThoseWhoCameMeanwhileAreAskedFor) {
  PlannedCluster cluster(2, memory_for(2));
  cluster.noted(cluster.lose(2));
  cluster.quiesce(1);
  ASSERT_TRUE(std::holds_alternative<RoundQuestion>(cluster.asked.back().question->what));
  cluster.noted(cluster.join(3));
  cluster.measure(3);
  cluster.quiesce(3);
  const CoordinatorDecisions again = cluster.noted(cluster.answer_last());
  EXPECT_EQ(find<EndRun>(again), nullptr);
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kQuiescing);
  const auto* question = std::get_if<RoundQuestion>(&cluster.asked.back().question->what);
  ASSERT_NE(question, nullptr);
  EXPECT_EQ(question->request.workers, (std::vector<WorkerId>{{1}, {3}}));
  EXPECT_NE(find<AssignPlan>(cluster.answer_last().decisions()), nullptr);
}

TEST(SlowPlanner, NobodyIsLostWhileItThinksForThreeLeases) {
  PlannedCluster cluster(3);
  for (uint32_t id = 1; id <= 3; ++id) cluster.quiesce(id);
  ASSERT_EQ(cluster.asked.size(), 1u);
  const CoordinatorDecisions meanwhile = cluster.wait(3 * kLeaseUs);
  EXPECT_EQ(find<DismissWorker>(meanwhile), nullptr);
  EXPECT_EQ(find<AssignPlan>(meanwhile), nullptr);
  EXPECT_EQ(cluster.asked.size(), 1u) << "it is asked once";
  const CoordinatorDecisions assigned = cluster.noted(cluster.answer_last());
  EXPECT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_TRUE(cluster.answer_last().is_dropped()) << "a repeat";
}

TEST(SlowPlanner, ALossThatLeavesAStageWithoutAReplicaIsMendedByAQuickRule) {
  PlannedCluster cluster(3);
  cluster.run_first_plan(3);
  const size_t asked = cluster.asked.size();
  const WorkerId lost = cluster.coordination.plan()->stages.front().replicas.front().worker;
  cluster.noted(cluster.lose(lost.value));
  CoordinatorDecisions assigned;
  for (uint32_t id = 1; id <= 3; ++id) {
    if (WorkerId{id} != lost) append(assigned, cluster.quiesce(id, {{0, kAll}}));
  }
  ASSERT_NE(find<AssignPlan>(assigned), nullptr) << "without the planner";
  EXPECT_EQ(cluster.asked.size(), asked);
  for (const auto& [id, member] : std::map(cluster.coordination.members())) {
    cluster.noted(cluster.prepared(id.value));
  }
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kTraining);
  // The planner's own plan follows, if it pays.
  cluster.wait(400'000);
  ASSERT_TRUE(std::holds_alternative<ExpectationQuestion>(cluster.asked.back().question->what));
  cluster.noted(cluster.answer_last());
  EXPECT_TRUE(std::holds_alternative<ChangeQuestion>(cluster.asked.back().question->what));
}

/// The quick rule would keep both, again and again.
TEST(SlowPlanner, ALinkThatWasTriedInVainIsForThePlannerAlsoAfterALoss) {
  // Enough for the plan of four without one of them, too little for two.
  PlannedCluster cluster(4, memory_for(3) * 3 / 2);
  cluster.run_first_plan(4);
  cluster.noted(cluster.answer_last());  // What the plan expects of its workers.
  cluster.noted(cluster.lose(4));
  bool was_tried = false, is_asked = false;
  for (int round = 0; round < 3 && !is_asked; ++round) {
    CoordinatorDecisions assigned;
    const size_t asked = cluster.asked.size();
    for (uint32_t id = 1; id <= 3; ++id) append(assigned, cluster.quiesce(id, {{0, kAll}}));
    is_asked = cluster.asked.size() > asked;
    if (is_asked) break;
    ASSERT_NE(find<AssignPlan>(assigned), nullptr);
    for (const CoordinatorDecision& each : assigned) {
      const auto* event = std::get_if<RunEvent>(&each);
      was_tried = was_tried || (event != nullptr && event->name == "link.tried_again");
    }
    cluster.noted(cluster.coordination.on_unreachable({1}, {2}, "in vain", ++cluster.now));
    cluster.wait(600'000);
  }
  EXPECT_TRUE(was_tried);
  ASSERT_TRUE(is_asked);
  const auto* question = std::get_if<RoundQuestion>(&cluster.asked.back().question->what);
  ASSERT_NE(question, nullptr);
  ASSERT_TRUE(question->without_unreached);
  EXPECT_EQ(question->without_unreached->workers, (std::vector<WorkerId>{{1}, {3}}));
}

TEST(SlowPlanner, StepsAreCommittedAndALossIsHandledWhileItThinksAboutAChange) {
  PlannedCluster cluster(2);
  cluster.run_first_plan(2);
  // What the plan expects of its workers is asked first.
  ASSERT_TRUE(std::holds_alternative<ExpectationQuestion>(cluster.asked.back().question->what));
  cluster.noted(cluster.join(3));
  cluster.measure(3);
  cluster.wait(1'000'000);
  cluster.noted(cluster.answer_last());  // The expectation: now it thinks about the change.
  ASSERT_TRUE(std::holds_alternative<ChangeQuestion>(cluster.asked.back().question->what));
  const auto change = cluster.asked.back();
  const auto replicas = static_cast<uint32_t>(replica_count(*cluster.coordination.plan()));
  for (uint64_t step = 0; step < 3; ++step) {
    for (uint32_t id = 0; id < replicas; ++id) cluster.noted(cluster.ready(id, step));
    const auto committed = cluster.noted(cluster.coordination.on_journaled(step, ++cluster.now));
    EXPECT_NE(find<BroadcastCommit>(committed), nullptr);
    EXPECT_TRUE(std::holds_alternative<BroadcastCommit>(committed.front()))
        << "what was decided goes out before anybody thinks";
  }
  const WorkerId lost = cluster.coordination.plan()->stages.front().replicas.front().worker;
  EXPECT_NE(find<QuiesceWorker>(cluster.noted(cluster.lose(lost.value))), nullptr);
  // Its answer comes in another generation.
  const CoordinatorOutcome late =
      cluster.coordination.on_plan_ready({change.id, answer(*change.question), 0}, ++cluster.now);
  EXPECT_EQ(find<AssignPlan>(late.decisions()), nullptr);
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kQuiescing);
}

TEST(SlowPlanner, APlanForSomebodyWhoHasGoneMeanwhileIsMadeAnew) {
  PlannedCluster cluster(3);
  for (uint32_t id = 1; id <= 3; ++id) cluster.quiesce(id);
  const RequestPlan first = cluster.asked.back();
  cluster.noted(cluster.lose(3));
  const CoordinatorDecisions again = cluster.noted(
      cluster.coordination.on_plan_ready({first.id, answer(*first.question), 0}, ++cluster.now));
  const bool has_all = find<AssignPlan>(again) != nullptr;
  if (!has_all) {
    EXPECT_NE(cluster.asked.back().id, first.id) << "the planner is asked again";
    const CoordinatorDecisions assigned = cluster.noted(cluster.answer_last());
    ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  }
  for (const StagePlan& stage : cluster.coordination.plan()->stages) {
    for (const ReplicaPlan& replica : stage.replicas) EXPECT_NE(replica.worker, WorkerId{3});
  }
}

TEST(SlowPlanner, WhereTheQuickRuleFindsNothingThePlannerIsAskedOnceAndItsWordCounts) {
  PlannedCluster cluster(3, memory_for(3));
  cluster.run_first_plan(3);
  const WorkerId lost = cluster.coordination.plan()->stages.front().replicas.front().worker;
  cluster.noted(cluster.lose(lost.value));
  const size_t before = cluster.asked.size();
  for (uint32_t id = 1; id <= 3; ++id) {
    if (WorkerId{id} != lost) cluster.quiesce(id, {{0, kAll}});
  }
  // The expectation of the plan before is still thought about: then comes the round.
  if (cluster.asked.size() == before) cluster.noted(cluster.answer_last());
  ASSERT_TRUE(std::holds_alternative<RoundQuestion>(cluster.asked.back().question->what));
  const size_t asked = cluster.asked.size();
  const CoordinatorDecisions answered = cluster.noted(cluster.answer_last());
  EXPECT_EQ(cluster.asked.size(), asked) << "it is not asked the same again";
  EXPECT_NE(cluster.coordination.phase(), Coordination::Phase::kQuiescing) << "a plan, or a pause";
}

PlannerQuestion expectation() { return {ExpectationQuestion{}}; }
PlannerQuestion round() { return {RoundQuestion{}}; }

TEST(PlannerRequests, OneQuestionIsInFlightAndTheNewestOfEachKindWaits) {
  PlannerRequests requests;
  const CoordinatorDecisions first = requests.ask(expectation());
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(requests.ask(round()).empty());
  EXPECT_TRUE(requests.ask(round()).empty()) << "it takes the place of the one before";
  EXPECT_TRUE(requests.is_asked<RoundQuestion>());
  const auto answered = requests.on_ready(std::get<RequestPlan>(first[0]).id);
  EXPECT_TRUE(answered.is_known && answered.is_wanted);
  ASSERT_EQ(answered.next.size(), 1u);
  const auto last = requests.on_ready(std::get<RequestPlan>(answered.next[0]).id);
  EXPECT_TRUE(last.is_wanted && last.next.empty());
  EXPECT_FALSE(requests.is_asked<RoundQuestion>());
}

TEST(PlannerRequests, WhatIsOvertakenIsNotWantedAndAStrangerIsNotKnown) {
  PlannerRequests requests;
  const auto first = requests.ask(round());
  requests.ask(expectation());
  requests.forget_all();
  EXPECT_FALSE(requests.on_ready(77).is_known);
  const auto answered = requests.on_ready(std::get<RequestPlan>(first[0]).id);
  EXPECT_TRUE(answered.is_known);
  EXPECT_FALSE(answered.is_wanted);
  EXPECT_TRUE(answered.next.empty()) << "what waited is forgotten, too";
  requests.check_invariants();
}

}  // namespace
}  // namespace skein::plans
