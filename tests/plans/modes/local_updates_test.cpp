#include "plans/modes/local_updates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plans/plan/pipeline_cuts.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "tests/plans/modes/pipeline_cluster.hpp"
#include "tests/plans/modes/pipeline_world.hpp"
#include "tests/plans/small_cluster.hpp"
#include "tests/support/cases.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::cases;

const std::vector<std::string>& policies() {
  static const std::vector<std::string> all = {
      "sdpipe", "partial_reduce", "prague",     "adpsgd",  "adpsgd_paired", "overlapped", "auto",
      "ps",     "ps_async",       "ps_bounded", "hetpipe", "grouped_ps"};
  return all;
}

struct WorldShape {
  int64_t stages, pipelines, claims;  // Claims in flight.
};

/// Calls `check` with worlds of all policies and some shapes; returns how many there were.
template <class Check>
void for_worlds(uint64_t seeds, const PipelineWorld::Options& base, Check check) {
  for (const std::string& policy : policies()) {
    for (const WorldShape& shape : {WorldShape{1, 1, 1},
                                    {1, 4, 1},
                                    {2, 3, 1},
                                    {3, 2, 1},
                                    {1, 3, 2},
                                    {2, 3, 2},
                                    {3, 2, 3},
                                    {4, 3, 4}}) {
      const uint64_t most = shape.claims == 1 ? seeds : (seeds + 2) / 3;
      for (uint64_t seed = 1; seed <= most; ++seed) {
        SCOPED_TRACE(testing::Message() << policy << " " << shape.stages << "x" << shape.pipelines
                                        << ", " << shape.claims << " claims");
        PipelineWorld::Options options = base;
        options.seed = seed;
        JobSpec job = pipeline_job(shape.stages, shape.pipelines, policy);
        job.sync.claims_in_flight = shape.claims;
        PipelineWorld world(std::move(job), options);
        world.run();
        check(world);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(LocalUpdates, EverySampleIsCommittedOnceAndAllMeetInTheEnd) {
  uint64_t groups = 0, nonblocking = 0, pushes = 0;
  for_worlds(cases(20), {}, [&](const PipelineWorld& world) {
    EXPECT_EQ(world.steps_done(), 9u);
    EXPECT_EQ(world.dropped_by_programs(), 0u);
    groups += world.groups_of_several();
    nonblocking += world.nonblocking();
    pushes += world.pushes();
  });
  EXPECT_GT(pushes, cases(1000));
  EXPECT_GT(groups, cases(1000));
  EXPECT_GT(nonblocking, cases(50));
}

/// Rounds of six samples for each pipeline replica, in claims of one to three.
TEST(LocalUpdates, ClaimsOfUnlikeSizesAreCommittedOnceWhoeverDies) {
  uint64_t redone = 0;
  for (const uint32_t kills : {0, 2}) {
    for (const std::string& policy : policies()) {
      for (uint64_t seed = 1; seed <= cases(20); ++seed) {
        SCOPED_TRACE(policy);
        PipelineWorld world(pipeline_job(2, 4, policy),
                            {.seed = seed, .kills = kills, .rows = {3, 1, 2, 1}});
        world.run();
        EXPECT_TRUE(kills > 0 || world.steps_done() == 9) << "seed " << seed;
        redone += world.redone();
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(redone, 0u);
}

TEST(LocalUpdates, AMemberOfAGroupWeighsWhatItHasJustTrainedOn) {
  const JobSpec job = pipeline_job(1, 2, "adpsgd_paired");
  const Plan plan = make_plan_of_cuts(job, {{{{1}}, {}, 3}, {{{2}}, {}, 1}}, 1).value();
  LocalUpdates mode(job, plan, make_policy(job, pipeline_layout(plan)));
  std::vector<std::vector<double>> weights;
  const auto take = [&](const CoordinatorDecisions& orders) {
    for (const CoordinatorDecision& each : orders) {
      const auto* average = std::get_if<AverageWeights>(&each);
      if (!average || average->members.size() < 2) continue;
      auto& own = weights.emplace_back();
      for (const GroupMember& member : average->members) own.push_back(member.weight);
    }
  };
  take(mode.begin(0, 5, 0).orders);  // Claims of six samples and of two.
  for (uint32_t replica : {0, 1}) {
    ReadyReport report;
    report.replica = {replica};
    take(mode.on_ready({replica + 1}, report, 1000).decisions().orders);
  }
  ASSERT_EQ(weights.size(), 1u);
  EXPECT_THAT(weights.front(), ElementsAre(0.75, 0.25));
}

TEST(LocalUpdates, WhoHasLargerClaimsWeighsMoreInAnAverage) {
  const JobSpec job = pipeline_job(1, 2, "sdpipe");
  std::vector<PipelineCuts> pipelines = {{{{1}}, {}, 3}, {{{2}}, {}, 1}};
  const Plan plan = make_plan_of_cuts(job, pipelines, 1).value();
  LocalUpdates mode(job, plan, make_policy(job, pipeline_layout(plan)));
  std::vector<double> weights;
  const auto keep = [&](const CoordinatorDecisions& orders) {
    for (const CoordinatorDecision& each : orders) {
      const auto* average = std::get_if<AverageWeights>(&each);
      if (!average || average->members.size() < 2) continue;
      for (const GroupMember& member : average->members) weights.push_back(member.weight);
    }
  };
  keep(mode.begin(0, 1, 0).orders);  // Four samples: three for the first one, one for the other.
  for (uint32_t replica : {0, 1}) {
    ReadyReport report;
    report.replica = {replica};
    keep(mode.on_ready({replica + 1}, report, 1000).decisions().orders);
  }
  EXPECT_THAT(weights, ElementsAre(0.75, 0.25)) << "the global average";
}

TEST(LocalUpdates, RepeatedAndLateWordsOfTheCoordinatorChangeNothing) {
  uint64_t dropped = 0;
  for_worlds(cases(20), {.repeat_share = 0.2}, [&](const PipelineWorld& world) {
    EXPECT_EQ(world.steps_done(), 9u);
    dropped += world.dropped_by_programs();
  });
  EXPECT_GT(dropped, cases(1000));
}

TEST(LocalUpdates, ALostPipelineCostsItsClaimWhichAnotherOneDoes) {
  uint64_t ended = 0, failed = 0, aborted = 0;
  for_worlds(cases(100), {.kills = 1, .kill_after = 100}, [&](const PipelineWorld& world) {
    ++(world.has_failed() ? failed : ended);
    aborted += world.aborted();
  });
  EXPECT_GT(ended, failed) << "most losses do not come while the mean is taken";
  EXPECT_GT(aborted, cases(20));
}

TEST(LocalUpdates, SeveralLossesLeaveTheOthersGoingOn) {
  uint64_t redone = 0;
  for_worlds(cases(100), {.kills = 3, .kill_after = 30},
             [&](const PipelineWorld& world) { redone += world.redone(); });
  EXPECT_GT(redone, cases(50)) << "iterations that nobody has any more are done again";
}

TEST(LocalUpdates, ARoundThatIsCutShortEndsAtAWholeStep) {
  uint64_t shorter = 0;
  for_worlds(cases(20), {.round_steps = 8, .cut_share = 0.01}, [&](const PipelineWorld& world) {
    EXPECT_LE(world.steps_done(), 24u);
    if (world.steps_done() < 24) ++shorter;
  });
  EXPECT_GT(shorter, cases(50));
}

/// Starts what it is told to, when its timer is called, and remembers what it has heard.
class ScriptedPolicy final : public GroupScheduler {
 public:
  GroupDecisions on_ready(const ReadySignal& signal, uint64_t) override {
    signals.push_back(signal);
    return {{}, 0};
  }
  GroupDecisions on_timer(uint64_t) override { return {std::exchange(next, {}), 0}; }
  GroupDecisions on_group_end(const GroupOutcome& outcome, uint64_t) override {
    heard.emplace_back(outcome);
    return {std::exchange(after_group, {}), 0};
  }
  GroupDecisions on_membership(const MembershipChange& change, uint64_t) override {
    heard.emplace_back(change);
    return {{}, 0};
  }

  std::vector<GroupStart> next, after_group;
  std::vector<ReadySignal> signals;
  std::vector<std::variant<GroupOutcome, MembershipChange>> heard;
};

GroupStart average(uint64_t number, const std::vector<uint32_t>& members) {
  GroupStart start;
  start.number = number;
  start.average = Average::kAverageWeights;
  for (uint32_t member : members) start.members.push_back({{member}, 0, 1.0});
  return start;
}

/// Three pipeline replicas of one stage, numbered as their replicas; worker n + 1 has number n.
struct Replicas {
  explicit Replicas(const std::string& policy_of_job = "sdpipe", int64_t claims = 1)
      : mode(job(policy_of_job, claims),
             make_pipeline_plan(job(policy_of_job, claims), {{1}, {2}, {3}}, 1).value(), owned()) {}
  static JobSpec job(const std::string& policy, int64_t claims) {
    JobSpec job = pipeline_job(1, 3, policy);
    job.sync.claims_in_flight = claims;
    return job;
  }
  std::unique_ptr<GroupScheduler> owned() {
    auto made = std::make_unique<ScriptedPolicy>();
    policy = made.get();
    return made;
  }

  ModeOutcome report(uint32_t replica, uint64_t step, double norm_squared = 4, double loss = 2) {
    ReadyReport report;
    report.replica = {replica};
    report.step = step;
    report.norm_squared = norm_squared;
    report.loss_sum = loss;
    report.loss_tokens = 1;
    ModeOutcome outcome = mode.on_ready({replica + 1}, report, 1);
    mode.check_invariants();
    return outcome;
  }
  CoordinatorDecisions ready(uint32_t replica, uint64_t step, double norm_squared = 4,
                             double loss = 2) {
    return report(replica, step, norm_squared, loss).decisions().orders;
  }
  CoordinatorDecisions begin(uint64_t first, uint64_t end) {
    return mode.begin(first, end, 1).orders;
  }
  CoordinatorDecisions start(const GroupStart& group) {
    policy->next = {group};
    CoordinatorDecisions orders = mode.on_timer(2).orders;
    mode.check_invariants();
    return orders;
  }
  ModeOutcome averaged(uint32_t replica, uint64_t number, bool ok = true) {
    ModeOutcome outcome = mode.on_averaged({replica + 1}, {replica}, number, ok, 3);
    mode.check_invariants();
    return outcome;
  }
  ModeDecisions lose(uint32_t worker) {
    ModeDecisions lost = mode.lose({worker}, 4);
    mode.check_invariants();
    return lost;
  }
  /// All do all samples of a round of one step, which are one iteration of each, alone.
  CoordinatorDecisions finish(uint64_t step) {
    ready(0, step);
    ready(1, step);
    return ready(2, step);
  }

  ScriptedPolicy* policy = nullptr;
  LocalUpdates mode;
};

TEST(LocalUpdates, AReplicaHasOneClaimAndTheNextOneComesWithTheCommit) {
  Replicas replicas;
  const CoordinatorDecisions begun = replicas.begin(2, 4);
  ASSERT_EQ(begun.size(), 3u);
  for (uint32_t pipeline = 0; pipeline < 3; ++pipeline) {
    const auto& claim = std::get<ClaimSamples>(begun[pipeline]);
    EXPECT_EQ(claim.pipeline, pipeline);
    EXPECT_EQ(claim.claim, (SampleClaim{12 + 2 * pipeline, 2}));
  }
  const CoordinatorDecisions decisions = replicas.ready(1, 0);
  const auto* commit = find<CommitPipeline>(decisions);
  ASSERT_NE(commit, nullptr);
  EXPECT_EQ(commit->pipeline, 1u);
  EXPECT_EQ(commit->claim, (SampleClaim{14, 2}));
  EXPECT_EQ(commit->next, (SampleClaim{18, 2}));
  EXPECT_EQ(commit->gradient_norm, 2);
  ASSERT_EQ(replicas.policy->signals.size(), 1u) << "the policy is asked with the same event";
  EXPECT_EQ(replicas.policy->signals[0].replica, ReplicaId{1});
}

TEST(LocalUpdates, WhatIsNotAwaitedIsDroppedWithItsReason) {
  Replicas replicas;
  replicas.begin(2, 4);
  replicas.ready(1, 0);
  EXPECT_EQ(replicas.report(1, 0).why_dropped(), DropReason::kStale) << "a repeat";
  EXPECT_EQ(replicas.report(0, 1).why_dropped(), DropReason::kEarly);
  EXPECT_EQ(replicas.report(9, 0).why_dropped(), DropReason::kUnknown);
  ReadyReport report;
  EXPECT_EQ(replicas.mode.on_ready({3}, report, 1).why_dropped(), DropReason::kNotAllowed)
      << "worker 3 does not hold replica 0";
  EXPECT_EQ(replicas.averaged(0, 7).why_dropped(), DropReason::kStale);
  replicas.lose(1);
  EXPECT_EQ(replicas.report(0, 0).why_dropped(), DropReason::kUnknown);
}

TEST(LocalUpdates, TheAverageBeginsWhenTheLastOneIsThrough) {
  Replicas replicas;
  replicas.begin(0, 1);
  EXPECT_EQ(find<AverageWeights>(replicas.ready(0, 0)), nullptr);
  EXPECT_EQ(find<AverageWeights>(replicas.ready(2, 0)), nullptr);
  const CoordinatorDecisions decisions = replicas.ready(1, 0);
  const auto* mean = find<AverageWeights>(decisions);
  ASSERT_NE(mean, nullptr);
  EXPECT_TRUE(mean->is_global);
  EXPECT_EQ(mean->steps_done, 1u);
  ASSERT_EQ(mean->members.size(), 3u);
  EXPECT_DOUBLE_EQ(mean->members[0].weight, 1.0 / 3);
  std::optional<CommitTotals> completed;
  for (uint32_t replica = 0; replica < 3; ++replica) {
    EXPECT_FALSE(completed);
    completed = replicas.averaged(replica, mean->number).decisions().completed;
    EXPECT_TRUE(replicas.averaged(replica, mean->number).is_dropped()) << "once a round";
  }
  ASSERT_TRUE(completed);
  EXPECT_EQ(completed->end_step, 1u);
  EXPECT_EQ(completed->loss_sum, 6);
  EXPECT_THAT(completed->replica_samples, ElementsAre(2u, 2u, 2u));
}

TEST(LocalUpdates, ALostMemberAbortsTheGroupForAllWhoHaveNotSaidThatTheyAreThrough) {
  Replicas replicas;
  replicas.begin(0, 5);
  replicas.finish(0);
  const CoordinatorDecisions started = replicas.start(average(7, {0, 1, 2}));
  const uint64_t number = find<AverageWeights>(started)->number;
  replicas.averaged(1, number);
  const CoordinatorDecisions lost = replicas.lose(1).orders;
  const auto* abort = find<AbortGroup>(lost);
  ASSERT_NE(abort, nullptr);
  EXPECT_EQ(abort->number, number);
  EXPECT_THAT(abort->members, ElementsAre(ReplicaId{2}));
  replicas.policy->heard.clear();
  replicas.averaged(2, number, false);
  ASSERT_FALSE(replicas.policy->heard.empty()) << "the policy waits for the outcome";
  const auto& outcome = std::get<GroupOutcome>(replicas.policy->heard.front());
  EXPECT_EQ(outcome.number, 7u);
  EXPECT_FALSE(outcome.ok);
  EXPECT_THAT(replicas.lose(1).orders, IsEmpty()) << "a repeat";
}

TEST(LocalUpdates, WhatThePolicyDecidesOnAnOutcomeBeginsWithIt) {
  Replicas replicas;
  replicas.begin(0, 5);
  replicas.finish(0);
  const CoordinatorDecisions started = replicas.start(average(7, {0, 1}));
  const uint64_t number = find<AverageWeights>(started)->number;
  replicas.averaged(0, number);
  replicas.policy->after_group = {average(8, {1, 2})};
  const CoordinatorDecisions ended = replicas.averaged(1, number).decisions().orders;
  ASSERT_NE(find<AverageWeights>(ended), nullptr);
  EXPECT_EQ(find<AverageWeights>(ended)->members.size(), 2u);
}

TEST(LocalUpdates, WhenAServerHasLostAShardWhoWaitsGoesOnAlone) {
  Replicas replicas("ps_async");
  replicas.begin(0, 5);
  replicas.finish(0);
  replicas.lose(3);
  replicas.policy->heard.clear();
  GroupStart served = average(7, {0, 1});
  served.average = Average::kServer;
  const CoordinatorDecisions started = replicas.start(served);
  ASSERT_EQ(started.size(), 2u);
  for (const auto& each : started) {
    EXPECT_EQ(std::get<AverageWeights>(each).members.size(), 1u);
    EXPECT_TRUE(std::get<AverageWeights>(each).shards.empty());
  }
  ASSERT_EQ(replicas.policy->heard.size(), 1u) << "the policy waits for the outcome";
  EXPECT_EQ(std::get<GroupOutcome>(replicas.policy->heard[0]).number, 7u);
  EXPECT_FALSE(std::get<GroupOutcome>(replicas.policy->heard[0]).ok);
}

TEST(LocalUpdatesDeathTest, APolicyThatPutsAReplicaInTwoGroupsIsABug) {
  Replicas replicas;
  replicas.begin(0, 5);
  replicas.finish(0);
  replicas.start(average(7, {0, 1}));
  EXPECT_DEATH(replicas.start(average(8, {1, 2})), "in two groups");
}

TEST(LocalUpdatesDeathTest, APolicyThatTakesALostReplicaIsABug) {
  Replicas replicas;
  replicas.begin(0, 5);
  replicas.finish(0);
  replicas.lose(3);
  EXPECT_DEATH(replicas.start(average(7, {0, 2})), "lost");
}

TEST(LocalUpdates, ThePolicyHearsOfALossBeforeWhatFollowsFromIt) {
  Replicas replicas;
  replicas.begin(0, 5);
  replicas.finish(0);
  const CoordinatorDecisions started = replicas.start(average(7, {0, 1}));
  replicas.averaged(0, find<AverageWeights>(started)->number);
  replicas.policy->heard.clear();
  replicas.lose(2);  // All are through, but for the dead.
  ASSERT_EQ(replicas.policy->heard.size(), 2u);
  ASSERT_TRUE(std::holds_alternative<MembershipChange>(replicas.policy->heard[0]));
  EXPECT_EQ(std::get<MembershipChange>(replicas.policy->heard[0]).pipeline, 1u);
  EXPECT_FALSE(std::get<GroupOutcome>(replicas.policy->heard[1]).ok);
}

TEST(LocalUpdates, WhoHasEndedTakesTheClaimOfALostReplica) {
  Replicas replicas;
  replicas.begin(0, 1);
  replicas.ready(0, 0);
  replicas.policy->heard.clear();
  const CoordinatorDecisions lost = replicas.lose(2).orders;
  const auto* claim = find<ClaimSamples>(lost);
  ASSERT_NE(claim, nullptr);
  EXPECT_EQ(claim->pipeline, 0u);
  EXPECT_EQ(claim->claim, (SampleClaim{2, 2}));
  EXPECT_EQ(claim->step, 1u);
  ASSERT_EQ(replicas.policy->heard.size(), 2u);
  EXPECT_TRUE(std::get<MembershipChange>(replicas.policy->heard[1]).joins);
  replicas.ready(2, 0);
  const CoordinatorDecisions last = replicas.ready(0, 1);
  ASSERT_NE(find<AverageWeights>(last), nullptr);
  EXPECT_EQ(find<AverageWeights>(last)->members.size(), 2u);
  EXPECT_FALSE(replicas.mode.is_whole());
}

TEST(LocalUpdates, ALossWhileTheAverageIsTakenFailsTheRoundAndOneBehindItDoesNot) {
  for (uint32_t through = 0; through <= 3; ++through) {
    Replicas replicas;
    replicas.begin(0, 1);
    const CoordinatorDecisions mean = replicas.finish(0);
    const uint64_t number = find<AverageWeights>(mean)->number;
    bool has_ended = false;
    for (uint32_t id = 0; id < through; ++id) {
      has_ended = replicas.averaged(id, number).decisions().completed.has_value();
    }
    EXPECT_EQ(replicas.lose(1).failed.has_value(), through < 3) << through << " were through";
    EXPECT_EQ(has_ended, through == 3);
  }
}

TEST(LocalUpdates, WithoutAnyReplicaTheRoundFails) {
  Replicas replicas;
  replicas.begin(0, 5);
  EXPECT_FALSE(replicas.lose(1).failed);
  EXPECT_FALSE(replicas.lose(2).failed);
  EXPECT_TRUE(replicas.lose(3).failed);
}

TEST(LocalUpdates, ALossBetweenTwoRoundsLeavesTheStateWhole) {
  Replicas replicas;
  EXPECT_FALSE(replicas.lose(1).failed);
  EXPECT_EQ(replicas.begin(0, 1).size(), 2u);
}

TEST(LocalUpdates, CutShortEndsBehindTheStepInWhichASampleWasClaimedLast) {
  for (uint32_t iterations = 0; iterations <= 9; ++iterations) {
    Replicas replicas;
    replicas.begin(3, 10);
    for (uint64_t i = 0; i < iterations; ++i) replicas.ready(0, i);
    replicas.mode.cut_short();
    // Three claims were given at first, and a step has three.
    EXPECT_EQ(replicas.mode.end_step(), 3 + (3 + iterations + 2) / 3) << iterations;
    const uint64_t end = replicas.mode.end_step();
    replicas.mode.cut_short();
    EXPECT_EQ(replicas.mode.end_step(), end) << "a repeat";
  }
}

TEST(LocalUpdates, AStageThatDivergesWithSeveralClaimsNamesItsOwn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool has_asked : {false, true}) {
    Replicas replicas("sdpipe", 2);
    const CoordinatorDecisions begun = replicas.begin(0, 5);
    SampleClaim second;  // What pipeline replica 1 holds beside its first one.
    for (const CoordinatorDecision& each : begun) {
      const auto* claim = std::get_if<ClaimSamples>(&each);
      if (claim && claim->pipeline == 1 && claim->step == 1) second = claim->claim;
    }
    ASSERT_GT(second.count, 0u);
    replicas.ready(1, 0);
    if (has_asked) {
      EXPECT_TRUE(replicas.mode.on_early_signal({2}, {1}, 1, 2).is_accepted());
      EXPECT_EQ(replicas.mode.on_early_signal({2}, {1}, 1, 2).why_dropped(), DropReason::kRepeated);
    }
    const CoordinatorDecisions decisions = replicas.ready(1, 1, nan);
    const auto* end = find<EndRun>(decisions);
    ASSERT_NE(end, nullptr);
    EXPECT_THAT(std::string(end->status.message()),
                HasSubstr(absl::StrCat("pipeline replica 1, samples from ", second.first)));
    EXPECT_EQ(replicas.report(1, 2).why_dropped(), DropReason::kUnexpected);
  }
}

/// It has claims of six samples, and takes one of two that another one has lost.
TEST(LocalUpdates, WithSeveralClaimsAMemberWeighsTheOneThatItAveragesBehind) {
  JobSpec job = pipeline_job(1, 3, "sdpipe");
  job.sync.claims_in_flight = 2;
  const std::vector<PipelineCuts> pipelines = {{{{1}}, {}, 3}, {{{2}}, {}, 1}, {{{3}}, {}, 1}};
  const Plan plan = make_plan_of_cuts(job, pipelines, 1).value();
  auto made = std::make_unique<ScriptedPolicy>();
  ScriptedPolicy* const policy = made.get();
  LocalUpdates mode(job, plan, std::move(made));
  mode.begin(0, 10, 0);
  mode.lose({3}, 1);
  for (uint64_t step = 0; step < 2; ++step) {
    ReadyReport report;
    report.replica = {0};
    report.step = step;
    ASSERT_TRUE(mode.on_ready({1}, report, 1).is_accepted());
  }
  ASSERT_TRUE(mode.on_early_signal({1}, {0}, 2, 1).is_accepted());
  policy->next = {average(0, {0, 1})};
  const CoordinatorDecisions orders = mode.on_timer(2).orders;
  const auto* group = find<AverageWeights>(orders);
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group->members[0].weight, group->members[1].weight) << "two samples each";
}

TEST(LocalUpdates, WhoIsToBeDoneSoonTakesOneClaimAfterTheOther) {
  Replicas replicas("sdpipe", 2);
  std::map<uint32_t, std::vector<uint64_t>> firsts;
  for (const CoordinatorDecision& each : replicas.begin(0, 5)) {
    const auto* claim = std::get_if<ClaimSamples>(&each);
    if (claim) firsts[claim->pipeline].push_back(claim->claim.first);
  }
  EXPECT_THAT(firsts[0], ElementsAre(0, 6)) << "in turns";
  EXPECT_THAT(firsts[2], ElementsAre(4, 10));
  // In its first claims, at 1 us, nothing is known but how long they have taken so far.
  EXPECT_EQ(replicas.mode.time_when_cut_short(1001), 3 * 1000.0);
  Replicas flushed;
  flushed.begin(0, 5);
  EXPECT_EQ(flushed.mode.time_when_cut_short(1001), 1000.0);
}

/// All stages of a pipeline replica are through with a claim, each busy so long.
CoordinatorDecisions report_all(LocalUpdates& mode, const Plan& plan, uint32_t pipeline,
                                uint64_t step, uint64_t step_us,
                                const std::vector<uint64_t>& busy_us) {
  CoordinatorDecisions orders;
  for (size_t stage = plan.stages.size(); stage-- > 0;) {
    const ReplicaPlan& replica = plan.stages[stage].replicas[pipeline];
    ReadyReport report;
    report.replica = replica.id;
    report.step = step;
    report.step_us = step_us;
    report.busy_us = busy_us[stage];
    append(orders, mode.on_ready(replica.worker, report, 1).decisions().orders);
    mode.check_invariants();
  }
  return orders;
}

TEST(LocalUpdates, WithAFlushWhoWouldBeLastIsToldByWholeIterations) {
  for (const uint64_t step_us : {3000, 8000}) {
    const JobSpec job = pipeline_job(2, 2, "overlapped");
    const Plan plan = make_pipeline_plan(job, {{1}, {2}, {3}, {4}}, 1).value();
    LocalUpdates mode(job, plan, std::make_unique<NobodyMeets>());
    mode.begin(0, 3, 0);  // Six claims.
    report_all(mode, plan, 1, 0, 1000, {500, 500});
    // The other one needs 4 ms for the rest, however short what each stage of this one computes.
    const CoordinatorDecisions orders = report_all(mode, plan, 0, 0, step_us, {600, 600});
    const auto* commit = find<CommitPipeline>(orders);
    ASSERT_NE(commit, nullptr);
    EXPECT_EQ(commit->next.has_value(), step_us == 3000);
  }
}

TEST(LocalUpdates, WithoutAFlushAllStagesOfAWorkerCount) {
  for (const uint64_t busy_us : {1000, 2000}) {
    JobSpec job = pipeline_job(2, 2, "overlapped");
    job.sync.claims_in_flight = 2;
    // The second worker has two of the three stages.
    const std::vector<PipelineCuts> pipelines = {{{{1}, {2}}, {1}}, {{{3}, {4}}, {3}}};
    const Plan plan = make_plan_of_cuts(job, pipelines, 1).value();
    LocalUpdates mode(job, plan, std::make_unique<NobodyMeets>());
    mode.begin(0, 4, 0);  // Eight claims.
    report_all(mode, plan, 1, 0, 9000, {10, 10, 1500});
    report_all(mode, plan, 1, 1, 9000, {10, 10, 1500});
    // The other one needs 6 ms for the four that are left for it; this one 4 or 8 ms for two.
    const CoordinatorDecisions orders = report_all(mode, plan, 0, 0, 9000, {10, busy_us, busy_us});
    EXPECT_EQ(find<ClaimSamples>(orders) != nullptr, busy_us == 1000);
  }
}

TEST(LocalUpdates, AnIterationThatDivergedIsNotAppliedAndEndsTheRun) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [norm, loss] : {std::pair(nan, 1.0), {infinity, 1.0}, {1.0, nan}}) {
    Replicas replicas;
    replicas.begin(0, 5);
    const CoordinatorDecisions decisions = replicas.ready(1, 0, norm, loss);
    ASSERT_EQ(decisions.size(), 1u);
    const auto& end = std::get<EndRun>(decisions.front());
    EXPECT_THAT(std::string(end.status.message()), HasSubstr("pipeline replica 1, samples from 2"));
  }
}

}  // namespace
}  // namespace skein::plans
