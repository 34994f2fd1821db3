#include "plans/sync/hetpipe.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "tests/plans/sync/random_pipelines.hpp"
#include "tests/plans/sync/server_recount.hpp"
#include "tests/support/cases.hpp"

namespace skein::plans {
namespace {

constexpr int kHetPipeEvents = tests::cases(120'000);  // So many for each of the parameters.

using Shape = std::tuple<uint32_t, uint64_t, uint64_t>;  // Stages, wave, distance.

struct HetPipeRandom : testing::TestWithParam<Shape> {};

/// Counts waves by itself: a pipeline replica that joins stands where the slowest does, at the
/// stage where that is furthest.
struct WaveCount {
  const RandomPipelines& pipelines;
  PipelineLayout layout;
  uint64_t wave;
  std::vector<uint64_t> before = std::vector<uint64_t>(layout.pipelines);

  uint64_t arrived(uint32_t stage, uint32_t pipeline) const {
    return before[pipeline] + pipelines.arrived(stage, pipeline) / wave;
  }
  uint64_t slowest(uint32_t stage, uint32_t except = UINT32_MAX) const {
    uint64_t slowest = UINT64_MAX;
    for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
      if (pipelines.is_live(pipeline) && pipeline != except) {
        slowest = std::min(slowest, arrived(stage, pipeline));
      }
    }
    return slowest == UINT64_MAX ? 0 : slowest;
  }
  void join(uint32_t joining) {
    before[joining] = 0;
    for (uint32_t stage = 0; stage < layout.stages; ++stage) {
      before[joining] = std::max(before[joining], slowest(stage, joining));
    }
  }
};

TEST_P(HetPipeRandom, NobodyIsFurtherAheadAndNobodyWaitsForever) {
  const auto [stages, wave, distance] = GetParam();
  const PipelineLayout layout{5, stages};
  HetPipePolicy policy(layout, {.wave = wave, .distance = distance});
  RandomPipelines pipelines(policy, layout, {.seed = 7 + wave + 10 * distance});
  WaveCount waves{pipelines, layout, wave};
  ServerRecount recount(layout, ServerRecount::Updates::kOfMembers);
  uint64_t joins = 0;
  pipelines.on_change = [&](const MembershipChange& change) {
    if (!change.joins) return;
    waves.join(change.pipeline);
    recount.join(change.pipeline);
    ++joins;
  };
  pipelines.on_end = [&](const GroupStart& start, bool ok) { recount.end(start, ok); };
  std::vector<uint64_t> joins_at(layout.replica_count());
  pipelines.on_start = [&](const GroupStart& start) {
    for (const GroupMember& member : start.members) {
      const uint32_t pipeline = layout.pipeline_of(member.replica);
      const bool ends_wave = pipelines.arrived(start.stage, pipeline) % wave == 0;
      if (ends_wave != (start.average == Average::kServer)) pipelines.fail("no wave end");
      const uint64_t ahead = waves.arrived(start.stage, pipeline) - waves.slowest(start.stage);
      if (ends_wave && ahead > distance) pipelines.fail("too far ahead");
      if (ends_wave && member.weight != 1.0 / pipelines.live_count()) pipelines.fail("weight");
    }
    if (start.average != Average::kServer) return;
    if (start.staleness != recount.push(start)) pipelines.fail("staleness miscounted");
  };
  pipelines.run(kHetPipeEvents);
  pipelines.settle(20 * wave);
  EXPECT_EQ(pipelines.breach(), "");
  EXPECT_GT(pipelines.deaths(), tests::cases(20));
  EXPECT_GT(pipelines.starts(), kHetPipeEvents / 10u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, HetPipeRandom,
                         testing::Combine(testing::Values(1u, 3u), testing::Values(1, 4),
                                          testing::Values(0, 1, 5)));

TEST(HetPipe, StalenessStaysWithinItsBound) {
  for (const uint64_t distance : {0, 1, 3}) {
    const PipelineLayout layout{6, 2};
    HetPipePolicy policy(layout, {.wave = 2, .distance = distance});
    RandomPipelines pipelines(policy, layout,
                              {.seed = 3, .death_share = 0, .join_share = 0, .failure_share = 0});
    uint64_t staleness_max = 0;
    pipelines.on_start = [&](const GroupStart& start) {
      staleness_max = std::max(staleness_max, start.staleness);
    };
    pipelines.run(kHetPipeEvents);
    EXPECT_EQ(pipelines.breach(), "");
    EXPECT_LE(staleness_max, 2 * distance * 5) << distance;
    EXPECT_GE(staleness_max, distance) << distance;
  }
}

TEST(HetPipe, HoldsAFastPipelineAndFreesItWithTheSlowOne) {
  const PipelineLayout layout{2, 1};
  HetPipePolicy policy(layout, {.wave = 1, .distance = 1});
  EXPECT_EQ(policy.on_ready({{0}, 0}, 0).starts.size(), 1u);
  policy.on_group_end({0, true}, 0);
  EXPECT_TRUE(policy.on_ready({{0}, 1}, 0).starts.empty());
  const GroupDecisions decisions = policy.on_ready({{1}, 0}, 0);
  ASSERT_EQ(decisions.starts.size(), 1u);
  EXPECT_EQ(decisions.starts[0].members.size(), 2u);
  EXPECT_EQ(decisions.starts[0].staleness, 1u);
}

TEST(HetPipe, TheDeathOfTheSlowestFreesTheOthers) {
  const PipelineLayout layout{2, 1};
  HetPipePolicy policy(layout, {.wave = 1, .distance = 0});
  EXPECT_TRUE(policy.on_ready({{0}, 0}, 0).starts.empty());
  EXPECT_EQ(policy.on_membership({1, false}, 0).starts.size(), 1u);
}

TEST(HetPipe, AddsWholeUpdatesAsInThePaperIfAsked) {
  const PipelineLayout layout{4, 1};
  HetPipePolicy policy(layout, {.wave = 1, .distance = 2, .adds_whole_updates = true});
  const GroupDecisions decisions = policy.on_ready({{2}, 0}, 0);
  ASSERT_EQ(decisions.starts.size(), 1u);
  EXPECT_EQ(decisions.starts[0].members[0].weight, 1.0);
}

}  // namespace
}  // namespace skein::plans
