#include "plans/coordinator/stage_sync.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

/// Replicas 4 and 5 on workers 1 and 2.
StageSync small_stage() {
  StagePlan stage;
  stage.replicas = {{{4}, {1}, {0, 1}}, {{5}, {2}, {1, 1}}};
  return StageSync(stage);
}

ReadyReport report(uint32_t replica, uint64_t step, bool needs_groups = false) {
  ReadyReport report;
  report.replica = {replica};
  report.step = step;
  report.needs_groups = needs_groups;
  report.norm_squared = 9;
  return report;
}

TEST(StageSync, IsCompleteWhenEveryReplicaHasReportedAndReduced) {
  StageSync stage = small_stage();
  stage.expect_all(3);
  EXPECT_EQ(stage.on_ready({1}, report(4, 3)), std::nullopt);
  EXPECT_EQ(stage.on_ready({2}, report(5, 3, true)), std::nullopt);
  EXPECT_FALSE(stage.is_complete());
  EXPECT_EQ(stage.on_reduced({2}, {5}, 3, 4), std::nullopt);
  EXPECT_TRUE(stage.is_complete());
  EXPECT_EQ(stage.norm_squared(), 9) << "that of the first replica";
  stage.check_invariants();
}

TEST(StageSync, EachReportThatIsNotAwaitedHasItsReason) {
  StageSync stage = small_stage();
  EXPECT_EQ(stage.on_ready({1}, report(4, 3)), DropReason::kUnexpected) << "before any step";
  stage.expect_all(3);
  EXPECT_EQ(stage.on_reduced({1}, {4}, 3, 4), DropReason::kEarly) << "before it is ready";
  EXPECT_EQ(stage.on_ready({1}, report(4, 3, true)), std::nullopt);
  EXPECT_EQ(stage.on_ready({1}, report(4, 3, true)), DropReason::kRepeated);
  EXPECT_EQ(stage.on_ready({2}, report(5, 2)), DropReason::kStale);
  EXPECT_EQ(stage.on_ready({2}, report(5, 4)), DropReason::kEarly);
  EXPECT_EQ(stage.on_ready({1}, report(5, 3)), DropReason::kNotAllowed) << "of another worker";
  EXPECT_EQ(stage.on_ready({1}, report(6, 3)), DropReason::kUnknown) << "of another stage";
  stage.lose({5});
  EXPECT_EQ(stage.on_ready({2}, report(5, 3)), DropReason::kUnknown) << "it is lost";
  stage.check_invariants();
}

TEST(StageSync, AGroupEndsWithTheLastMemberThatIsAwaited) {
  StageSync stage = small_stage();
  stage.begin_group(7, {{4}, {5}});
  EXPECT_TRUE(stage.is_in_group({4}));
  EXPECT_TRUE(stage.on_group_done({1}, {4}, 7, false).decisions().empty());
  EXPECT_FALSE(stage.is_in_group({4}));
  EXPECT_EQ(stage.on_group_done({1}, {4}, 7, true).why_dropped(), DropReason::kRepeated);
  const auto ended = stage.on_group_done({2}, {5}, 7, true);
  ASSERT_EQ(ended.decisions().size(), 1u);
  EXPECT_FALSE(ended.decisions()[0].ok) << "as one of them says";
  EXPECT_EQ(stage.on_group_done({2}, {5}, 7, true).why_dropped(), DropReason::kStale);
}

TEST(StageSync, AnAbortedGroupAwaitsTheLiveMembersOnly) {
  StageSync stage = small_stage();
  stage.begin_group(7, {{4}, {5}});
  stage.lose({5});
  const StageSync::Abort abort = stage.abort_group(7);
  EXPECT_EQ(abort.awaited, std::vector<ReplicaId>{{4}});
  EXPECT_FALSE(abort.ended);
  const auto ended = stage.on_group_done({1}, {4}, 7, true);
  ASSERT_EQ(ended.decisions().size(), 1u);
  EXPECT_FALSE(ended.decisions()[0].ok);
  stage.begin_group(8, {{4}});
  stage.lose({4});
  ASSERT_TRUE(stage.abort_group(8).ended) << "nobody is left to say so";
}

TEST(StageSync, TakesOneEarlySignalBeforeEachReport) {
  StageSync stage = small_stage();
  EXPECT_EQ(stage.on_early_signal({1}, {4}, 0), DropReason::kUnexpected);
  stage.expect_all(3);
  EXPECT_EQ(stage.on_early_signal({2}, {4}, 3), DropReason::kNotAllowed);
  EXPECT_EQ(stage.on_early_signal({1}, {4}, 2), DropReason::kStale);
  EXPECT_EQ(stage.on_early_signal({1}, {4}, 4), DropReason::kEarly);
  EXPECT_EQ(stage.on_early_signal({1}, {4}, 3), std::nullopt);
  EXPECT_EQ(stage.on_early_signal({1}, {4}, 3), DropReason::kRepeated);
  EXPECT_EQ(stage.on_ready({2}, report(5, 3)), std::nullopt);
  EXPECT_EQ(stage.on_early_signal({2}, {5}, 3), DropReason::kRepeated) << "it has reported";
  stage.check_invariants();
}

}  // namespace
}  // namespace skein::plans
