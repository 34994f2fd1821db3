#include "plans/modes/column_loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plans/plan/column_plan.hpp"
#include "tests/plans/modes/column_world.hpp"
#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string>& policies() {
  static const std::vector<std::string> all = {
      "sdpipe", "partial_reduce", "prague",     "adpsgd",  "adpsgd_paired", "overlapped", "auto",
      "ps",     "ps_async",       "ps_bounded", "hetpipe", "grouped_ps"};
  return all;
}

/// Calls `check` with worlds of all policies and some layouts; returns how many there were.
template <class Check>
void for_worlds(uint64_t seeds, const ColumnWorld::Options& base, Check check) {
  for (const std::string& policy : policies()) {
    for (const auto& [stages, columns] : {std::pair(1, 1), {1, 4}, {2, 3}, {3, 2}}) {
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        SCOPED_TRACE(testing::Message() << policy << " " << stages << "x" << columns);
        ColumnWorld::Options options = base;
        options.seed = seed;
        ColumnWorld world(column_job(stages, columns, policy), options);
        world.run();
        check(world);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ColumnLoop, EverySampleIsCommittedOnceAndAllMeetInTheEnd) {
  uint64_t groups = 0, passive = 0, pushes = 0;
  for_worlds(20, {}, [&](const ColumnWorld& world) {
    EXPECT_EQ(world.steps_done(), 9u);
    EXPECT_EQ(world.dropped_by_programs(), 0u);
    groups += world.groups_of_several();
    passive += world.passive();
    pushes += world.pushes();
  });
  EXPECT_GT(pushes, 1000u);
  EXPECT_GT(groups, 1000u);
  EXPECT_GT(passive, 50u);
}

TEST(ColumnLoop, RepeatedAndLateWordsOfTheCoordinatorChangeNothing) {
  uint64_t dropped = 0;
  for_worlds(20, {.repeat_share = 0.2}, [&](const ColumnWorld& world) {
    EXPECT_EQ(world.steps_done(), 9u);
    dropped += world.dropped_by_programs();
  });
  EXPECT_GT(dropped, 1000u);
}

TEST(ColumnLoop, ALostColumnCostsItsLeaseWhichAnotherOneDoes) {
  uint64_t ended = 0, failed = 0, dissolved = 0;
  for_worlds(100, {.kills = 1, .kill_after = 100}, [&](const ColumnWorld& world) {
    ++(world.has_failed() ? failed : ended);
    dissolved += world.dissolved();
  });
  EXPECT_GT(ended, failed) << "most losses do not come while the mean is taken";
  EXPECT_GT(dissolved, 20u);
}

TEST(ColumnLoop, SeveralLossesLeaveTheOthersGoingOn) {
  uint64_t redone = 0;
  for_worlds(100, {.kills = 3, .kill_after = 30},
             [&](const ColumnWorld& world) { redone += world.redone(); });
  EXPECT_GT(redone, 50u) << "iterations that nobody has any more are done again";
}

TEST(ColumnLoop, ASegmentThatIsCutShortEndsAtAWholeStep) {
  uint64_t shorter = 0;
  for_worlds(20, {.segment_steps = 8, .cut_share = 0.01}, [&](const ColumnWorld& world) {
    EXPECT_LE(world.steps_done(), 24u);
    if (world.steps_done() < 24) ++shorter;
  });
  EXPECT_GT(shorter, 50u);
}

/// The loop of three columns of one stage, whose replicas are the columns and workers 1 to 3.
struct Columns {
  Columns() : loop(job(), make_column_plan(job(), {{1}, {2}, {3}}, 1).value()) {}
  static JobSpec job() { return column_job(1, 3); }

  CoordinatorDecisions ready(uint32_t replica, uint64_t step, double norm_squared = 4,
                             double loss = 2) {
    ReadyReport report;
    report.replica = {replica};
    report.step = step;
    report.norm_squared = norm_squared;
    report.loss_sum = loss;
    report.loss_tokens = 1;
    return loop.on_ready(report);
  }
  CoordinatorDecisions start(uint64_t number, const std::vector<uint32_t>& members) {
    GroupStart start;
    start.number = number;
    start.combination = Combination::kAverageWeights;
    for (uint32_t member : members) start.members.push_back({{member}, 0, 1.0});
    return loop.on_group_start(start);
  }
  /// All do all samples of a segment of one step, which are one iteration of each, alone.
  CoordinatorDecisions finish(uint64_t step) {
    ready(0, step);
    ready(1, step);
    return ready(2, step);
  }

  ColumnLoop loop;
};

TEST(ColumnLoop, AColumnHasOneLeaseAndTheNextOneComesWithTheCommit) {
  Columns columns;
  const CoordinatorDecisions begun = columns.loop.begin_segment(2, 4);
  ASSERT_EQ(begun.size(), 3u);
  for (uint32_t column = 0; column < 3; ++column) {
    const auto& lease = std::get<LeaseSamples>(begun[column]);
    EXPECT_EQ(lease.column, column);
    EXPECT_EQ(lease.lease, (SampleLease{12 + 2 * column, 2}));
  }
  const CoordinatorDecisions decisions = columns.ready(1, 0);
  const auto* commit = find<CommitColumn>(decisions);
  ASSERT_NE(commit, nullptr);
  EXPECT_EQ(commit->column, 1u);
  EXPECT_EQ(commit->lease, (SampleLease{14, 2}));
  EXPECT_EQ(commit->next, (SampleLease{18, 2}));
  EXPECT_EQ(commit->gradient_norm, 2);
  EXPECT_NE(find<TellPolicy>(decisions), nullptr);
  EXPECT_THAT(columns.ready(1, 0), IsEmpty()) << "a repeat";
  EXPECT_THAT(columns.ready(0, 1), IsEmpty()) << "of a step that it has not begun";
  EXPECT_THAT(columns.ready(9, 0), IsEmpty()) << "of nobody";
  EXPECT_EQ(columns.loop.dropped(), 3u);
}

TEST(ColumnLoop, TheMeanBeginsWhenTheLastOneIsThrough) {
  Columns columns;
  columns.loop.begin_segment(0, 1);
  EXPECT_EQ(find<CombineWeights>(columns.ready(0, 0)), nullptr);
  EXPECT_EQ(find<CombineWeights>(columns.ready(2, 0)), nullptr);
  const CoordinatorDecisions decisions = columns.ready(1, 0);
  const auto* mean = find<CombineWeights>(decisions);
  ASSERT_NE(mean, nullptr);
  EXPECT_TRUE(mean->is_common);
  EXPECT_EQ(mean->steps_done, 1u);
  ASSERT_EQ(mean->members.size(), 3u);
  EXPECT_DOUBLE_EQ(mean->members[0].weight, 1.0 / 3);
  for (uint32_t replica = 0; replica < 3; ++replica) {
    EXPECT_FALSE(columns.loop.take_end());
    columns.loop.on_combined({replica}, mean->number, true);
    columns.loop.on_combined({replica}, mean->number, true);
  }
  EXPECT_TRUE(columns.loop.take_end());
  EXPECT_FALSE(columns.loop.take_end()) << "once a segment";
  EXPECT_EQ(columns.loop.dropped(), 3u);
  EXPECT_EQ(columns.loop.totals().loss_sum, 6);
  EXPECT_THAT(columns.loop.totals().samples, ElementsAre(2u, 2u, 2u));
}

TEST(ColumnLoop, ALostMemberDissolvesTheGroupForAllWhoHaveNotSaidThatTheyAreThrough) {
  Columns columns;
  columns.loop.begin_segment(0, 5);
  columns.finish(0);
  const CoordinatorDecisions started = columns.start(7, {0, 1, 2});
  const uint64_t number = find<CombineWeights>(started)->number;
  columns.loop.on_combined({1}, number, true);
  const CoordinatorDecisions lost = columns.loop.lose({1});
  const auto* dissolve = find<DissolveGroup>(lost);
  ASSERT_NE(dissolve, nullptr);
  EXPECT_EQ(dissolve->number, number);
  EXPECT_THAT(dissolve->members, ElementsAre(ReplicaId{2}));
  const CoordinatorDecisions through = columns.loop.on_combined({2}, number, false);
  const auto* tell = find<TellPolicy>(through);
  ASSERT_NE(tell, nullptr) << "the policy waits for the outcome";
  EXPECT_EQ(std::get<GroupOutcome>(tell->what).number, 7u);
  EXPECT_FALSE(std::get<GroupOutcome>(tell->what).ok);
  EXPECT_THAT(columns.loop.lose({1}), IsEmpty()) << "a repeat";
}

TEST(ColumnLoop, WhoWaitsGoesOnAloneIfThePolicyDoesNotKnowOfALossYet) {
  Columns columns;
  columns.loop.begin_segment(0, 5);
  columns.finish(0);
  columns.loop.lose({2});
  const CoordinatorDecisions started = columns.start(7, {0, 1});
  const auto* alone = find<CombineWeights>(started);
  ASSERT_NE(alone, nullptr);
  ASSERT_EQ(alone->members.size(), 1u);
  EXPECT_EQ(alone->members[0].replica, ReplicaId{0});
  const auto* tell = find<TellPolicy>(started);
  ASSERT_NE(tell, nullptr) << "the policy waits for the outcome";
  EXPECT_EQ(std::get<GroupOutcome>(tell->what).number, 7u);
  EXPECT_FALSE(std::get<GroupOutcome>(tell->what).ok);
}

TEST(ColumnLoop, NobodyIsInTwoGroupsAtOnceWhateverThePolicySays) {
  Columns columns;
  columns.loop.begin_segment(0, 5);
  columns.finish(0);
  const CoordinatorDecisions first = columns.start(7, {0, 1});
  ASSERT_NE(find<CombineWeights>(first), nullptr);
  GroupStart second;
  second.number = 8;
  second.combination = Combination::kAverageWeights;
  second.members = {{{1}, 0, 0.5, /*is_passive=*/true}, {{2}, 0, 0.5}};
  const CoordinatorDecisions refused = columns.loop.on_group_start(second);
  const auto* alone = find<CombineWeights>(refused);
  ASSERT_NE(alone, nullptr);
  ASSERT_EQ(alone->members.size(), 1u);
  EXPECT_EQ(alone->members[0].replica, ReplicaId{2});
  EXPECT_EQ(std::get<GroupOutcome>(find<TellPolicy>(refused)->what).number, 8u);
}

TEST(ColumnLoop, ThePolicyHearsOfALossBeforeWhatFollowsFromIt) {
  Columns columns;
  columns.loop.begin_segment(0, 5);
  columns.finish(0);
  const CoordinatorDecisions started = columns.start(7, {0, 1});
  columns.loop.on_combined({0}, find<CombineWeights>(started)->number, true);
  const CoordinatorDecisions lost = columns.loop.lose({2});  // All are through, but for the dead.
  const auto* first = find<TellPolicy>(lost);
  ASSERT_NE(first, nullptr);
  ASSERT_TRUE(std::holds_alternative<MembershipChange>(first->what));
  EXPECT_EQ(std::get<MembershipChange>(first->what).column, 1u);
}

TEST(ColumnLoop, WhoHasEndedTakesTheLeaseOfALostColumn) {
  Columns columns;
  columns.loop.begin_segment(0, 1);
  columns.ready(0, 0);
  const CoordinatorDecisions lost = columns.loop.lose({2});
  const auto* lease = find<LeaseSamples>(lost);
  ASSERT_NE(lease, nullptr);
  EXPECT_EQ(lease->column, 0u);
  EXPECT_EQ(lease->lease, (SampleLease{2, 2}));
  EXPECT_EQ(lease->step, 1u);
  const auto* joins = find<TellPolicy>(lost);
  ASSERT_NE(joins, nullptr);
  columns.ready(2, 0);
  const CoordinatorDecisions last = columns.ready(0, 1);
  ASSERT_NE(find<CombineWeights>(last), nullptr);
  EXPECT_EQ(find<CombineWeights>(last)->members.size(), 2u);
  EXPECT_TRUE(columns.loop.has_lost());
  EXPECT_FALSE(columns.loop.has_failed());
}

TEST(ColumnLoop, ALossWhileTheMeanIsTakenFailsTheSegmentAndOneBehindItDoesNot) {
  for (uint32_t through = 0; through <= 3; ++through) {
    Columns columns;
    columns.loop.begin_segment(0, 1);
    const CoordinatorDecisions mean = columns.finish(0);
    const uint64_t number = find<CombineWeights>(mean)->number;
    for (uint32_t id = 0; id < through; ++id) columns.loop.on_combined({id}, number, true);
    columns.loop.lose({1});
    EXPECT_EQ(columns.loop.has_failed(), through < 3) << through << " were through";
    EXPECT_EQ(columns.loop.take_end(), through == 3);
  }
}

TEST(ColumnLoop, WithoutAnyColumnTheSegmentFails) {
  Columns columns;
  columns.loop.begin_segment(0, 5);
  columns.loop.lose({1});
  columns.loop.lose({2});
  EXPECT_FALSE(columns.loop.has_failed());
  columns.loop.lose({3});
  EXPECT_TRUE(columns.loop.has_failed());
}

TEST(ColumnLoop, ALossBetweenTwoSegmentsLeavesTheStateWhole) {
  Columns columns;
  columns.loop.lose({1});
  EXPECT_FALSE(columns.loop.has_failed());
  EXPECT_EQ(columns.loop.begin_segment(0, 1).size(), 2u);
}

TEST(ColumnLoop, CutShortEndsBehindTheStepInWhichASampleWasLeasedLast) {
  for (uint32_t iterations = 0; iterations <= 9; ++iterations) {
    Columns columns;
    columns.loop.begin_segment(3, 10);
    for (uint64_t i = 0; i < iterations; ++i) {
      columns.ready(0, i);
      columns.start(i, {0});
    }
    columns.loop.cut_short();
    // Three leases were given at first, and a step has three.
    EXPECT_EQ(columns.loop.end_step(), 3 + (3 + iterations + 2) / 3) << iterations;
    const uint64_t end = columns.loop.end_step();
    columns.loop.cut_short();
    EXPECT_EQ(columns.loop.end_step(), end) << "a repeat";
  }
}

TEST(ColumnLoop, AnIterationThatDivergedIsNotAppliedAndEndsTheRun) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [norm, loss] : {std::pair(nan, 1.0), {infinity, 1.0}, {1.0, nan}}) {
    Columns columns;
    columns.loop.begin_segment(0, 5);
    const CoordinatorDecisions decisions = columns.ready(1, 0, norm, loss);
    ASSERT_EQ(decisions.size(), 1u);
    const auto& end = std::get<EndRun>(decisions.front());
    EXPECT_THAT(std::string(end.status.message()), HasSubstr("column 1, samples from 2"));
  }
}

}  // namespace
}  // namespace skein::plans
