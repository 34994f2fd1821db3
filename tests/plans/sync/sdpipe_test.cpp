#include "plans/sync/sdpipe.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "policy_driver.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kStepUs = 1000;
/// A fifth of the longest step: 1.5 times four times ten times the mean.
constexpr uint64_t kWindowUsMax = 60 * kStepUs / 5;

TEST(Sdpipe, OwesNothingWhateverHappens) {
  for (const auto& [layout, options] : driver_settings({.wake_us_max = kWindowUsMax})) {
    for (const bool artefact : {false, true}) {
      SdpipeOptions form = artefact ? sdpipe_artefact(layout.pipelines, 2) : SdpipeOptions{};
      form.period = 2;
      SdpipePolicy policy(layout, form);
      PolicyDriver driver(policy, layout, options);
      ASSERT_TRUE(driver.run()) << layout.pipelines << " x " << layout.stages;
      EXPECT_EQ(driver.change_count() > 0, options.death_rate > 0 && layout.pipelines > 1);
    }
  }
}

TEST(Sdpipe, PairsOweNothingEither) {
  for (const auto& [layout, options] :
       driver_settings({.events = 20'000, .wake_us_max = kWindowUsMax})) {
    SdpipeOptions form;
    form.pairs = true;
    SdpipePolicy policy(layout, form);
    PolicyDriver driver(policy, layout, options);
    ASSERT_TRUE(driver.run());
  }
}

TEST(Sdpipe, StalenessWeightsAreAverages) {
  for (const auto& [layout, options] :
       driver_settings({.events = 20'000, .equal_weights = false})) {
    SdpipeOptions form;
    form.decay = 0.5;
    SdpipePolicy policy(layout, form);
    PolicyDriver driver(policy, layout, options);
    ASSERT_TRUE(driver.run());
  }
}

TEST(Sdpipe, MixesTheReplicasOfEachStage) {
  for (const uint32_t stages : {1u, 3u}) {
    const PipelineLayout layout{7, stages};
    SdpipePolicy policy(layout, {});
    PolicyDriver driver(policy, layout, {.coupled = stages > 1, .learns = false});
    std::vector<double> means;
    for (uint32_t s = 0; s < stages; ++s) means.push_back(driver.mean(s));
    ASSERT_TRUE(driver.run());
    for (uint32_t s = 0; s < stages; ++s) {
      EXPECT_LT(driver.spread(s), 1e-6);
      EXPECT_NEAR(driver.mean(s), means[s], 1e-6);
    }
  }
}

/// Updates of a stage between two moments at which its groups since the first have connected all.
class Connections {
 public:
  Connections(PipelineLayout layout)
      : layout_(layout),
        stages_(layout.stages, {Components(std::vector<bool>(layout.pipelines, true)), 0}) {}

  void on_start(const GroupStart& start) {
    Stage& stage = stages_[static_cast<size_t>(start.stage)];
    std::vector<uint32_t> pipelines;
    for (const GroupMember& m : start.members) pipelines.push_back(layout_.pipeline_of(m.replica));
    stage.components.connect(pipelines);
    stage.updates += pipelines.size();
    longest_ = std::max(longest_, stage.updates);
    if (stage.components.count() > 1) return;
    stage.components.reset();
    stage.updates = 0;
  }
  uint64_t longest() const { return longest_; }

 private:
  struct Stage {
    Components components;
    uint64_t updates;
  };
  PipelineLayout layout_;
  std::vector<Stage> stages_;
  uint64_t longest_ = 0;
};

// Between two holds: P * N updates, up to N of the group that completes them, and the hold's own N.
// What connects by itself in between may put the start of our count before a hold: twice that.
TEST(Sdpipe, ConnectsAllPipelinesInTheStatedPeriod) {
  for (const uint32_t pipelines : {2u, 5u, 8u, 12u}) {
    for (const uint64_t period : {1u, 2u, 5u}) {
      for (const bool pairs : {false, true}) {
        const PipelineLayout layout{pipelines, 1};
        SdpipeOptions form;
        form.period = period;
        form.pairs = pairs;
        SdpipePolicy policy(layout, form);
        PolicyDriver driver(policy, layout, {.seed = pipelines + period, .slow_share = 0.4});
        Connections connections(layout);
        driver.on_start = [&](const GroupStart& start) { connections.on_start(start); };
        ASSERT_TRUE(driver.run());
        EXPECT_LE(connections.longest(), 2 * (period + 2) * pipelines)
            << pipelines << " " << period;
      }
    }
  }
}

// Other stages' holds come first, each of at most one step of each pipeline replica in a pipeline.
TEST(Sdpipe, ConnectsEachStageOfAPipeline) {
  const PipelineLayout layout{6, 4};
  SdpipeOptions form;
  form.period = 2;
  SdpipePolicy policy(layout, form);
  PolicyDriver driver(policy, layout, {.coupled = true, .slow_share = 0.4});
  Connections connections(layout);
  driver.on_start = [&](const GroupStart& start) { connections.on_start(start); };
  ASSERT_TRUE(driver.run());
  EXPECT_LE(connections.longest(), 2 * (form.period + 2 + 2 * layout.stages) * layout.pipelines);
}

TEST(Sdpipe, IsAllReduceWithAPeriodOfOneAndOneStage) {
  const PipelineLayout layout{8, 1};
  for (const bool artefact : {false, true}) {
    SdpipeOptions form = artefact ? sdpipe_artefact(8, 1) : SdpipeOptions{};
    form.period = 1;
    SdpipePolicy policy(layout, form);
    PolicyDriver driver(policy, layout, {.events = 20'000});
    uint64_t starts = 0, smaller = 0;
    driver.on_start = [&](const GroupStart& start) {
      smaller += start.members.size() < 8 && ++starts > 8;
    };
    ASSERT_TRUE(driver.run());
    EXPECT_EQ(smaller, 0u);
  }
}

struct SdpipeByHand : testing::Test {
  GroupDecisions ready(uint32_t replica, uint64_t step, uint64_t now_us) {
    GroupDecisions decisions = policy.on_ready({{replica}, step}, now_us);
    wake_us = decisions.wake_us;
    return decisions;
  }
  void alone(uint32_t replica, uint64_t now_us) {
    ready(replica, 0, now_us);
    EXPECT_EQ(policy.on_timer(now_us + 10'000).starts.size(), 1u);
  }
  SdpipeOptions options = [] {
    SdpipeOptions form = sdpipe_artefact(3, 1);
    form.holds_in_turn = true;
    return form;
  }();
  SdpipePolicy policy{{3, 2}, options};  // Replicas 0 to 2 and 3 to 5.
  std::optional<uint64_t> wake_us;
};

TEST_F(SdpipeByHand, AGroupOfOneGoesOnLocally) {
  EXPECT_TRUE(ready(1, 0, 100).starts.empty());
  ASSERT_EQ(wake_us, 1100u);
  const GroupDecisions decisions = policy.on_timer(1100);
  ASSERT_EQ(decisions.starts.size(), 1u);
  EXPECT_EQ(decisions.starts[0].average, Average::kLocal);
  EXPECT_EQ(policy.on_ready({{1}, 1}, 1200).wake_us, 3200u);  // Its window has doubled.
}

TEST_F(SdpipeByHand, OneStageHoldsAtATimeAndADeathEndsItsHold) {
  for (const uint32_t replica : {0u, 1u, 2u, 3u, 4u, 5u}) alone(replica, replica * 20'000);
  ready(0, 1, 200'030);
  EXPECT_FALSE(wake_us);  // Stage 0 holds.
  ready(3, 1, 200'040);
  EXPECT_TRUE(wake_us);  // Stage 1 must not.
  const GroupDecisions left = policy.on_membership({0, false, 0}, 200'050);
  EXPECT_TRUE(left.starts.empty());
  EXPECT_FALSE(left.wake_us);  // Nobody is ready.
  ready(4, 1, 200'060);
  EXPECT_TRUE(wake_us);  // It is the turn of stage 0.
  ready(1, 1, 200'070);
  EXPECT_EQ(ready(5, 1, 200'080).starts.size(), 1u);
  EXPECT_FALSE(wake_us);
  EXPECT_EQ(ready(2, 1, 200'090).starts.size(), 1u);
}

TEST_F(SdpipeByHand, AHoldDoesNotWaitForTheDead) {
  for (const uint32_t replica : {0u, 1u, 2u}) alone(replica, replica * 20'000);
  ready(0, 1, 200'030);
  ready(1, 1, 200'040);
  EXPECT_FALSE(wake_us);
  const GroupDecisions decisions = policy.on_membership({2, false, 0}, 200'050);
  ASSERT_EQ(decisions.starts.size(), 1u);
  EXPECT_EQ(decisions.starts[0].members.size(), 2u);
}

TEST_F(SdpipeByHand, AHoldWaitsOnlyForThoseWithoutAnEdge) {
  alone(0, 0);
  ready(1, 0, 20'000);
  ready(2, 0, 20'001);
  policy.on_timer(30'000);
  policy.on_group_end({1, true}, 30'100);
  ready(1, 1, 40'000);
  EXPECT_FALSE(wake_us);
  const GroupDecisions decisions = ready(0, 1, 90'000);
  ASSERT_EQ(decisions.starts.size(), 1u);
  EXPECT_EQ(decisions.starts[0].members.size(), 2u);
}

TEST_F(SdpipeByHand, AHoldDoesNotCountTheDead) {
  for (const uint32_t replica : {0u, 1u, 2u}) alone(replica, replica * 20'000);
  ready(0, 1, 200'030);
  ready(1, 1, 200'040);
  EXPECT_TRUE(policy.on_membership({1, false, 0}, 200'050).starts.empty());
  EXPECT_EQ(ready(2, 1, 200'060).starts.size(), 1u);
}

TEST(Sdpipe, ADeathLetsTheNextStageHold) {
  SdpipePolicy policy({3, 2}, sdpipe_artefact(3, 1));
  for (const uint32_t replica : {0u, 1u, 2u, 3u, 4u, 5u}) {
    policy.on_ready({{replica}, 0}, replica * 20'000);
    policy.on_timer(replica * 20'000 + 10'000);
  }
  EXPECT_FALSE(policy.on_ready({{0}, 1}, 200'000).wake_us);  // Stage 0 holds,
  policy.on_membership({0, false, 0}, 200'010);              // and does no more.
  EXPECT_FALSE(policy.on_ready({{4}, 1}, 200'020).wake_us);
  EXPECT_TRUE(policy.on_ready({{1}, 1}, 200'030).wake_us);
}

TEST(SdpipeWindow, FollowsTheStepTime) {
  const WindowOptions options;
  AdaptiveWindow window(options);
  for (int i = 0; i < 100; ++i) window.on_step(100'000);
  EXPECT_EQ(window.window_us(options), 10'000u);
  for (int i = 0; i < 100; ++i) window.on_group(options, 1);
  EXPECT_EQ(window.window_us(options), 20'000u);
  for (int i = 0; i < 100; ++i) window.on_group(options, 2);
  EXPECT_EQ(window.window_us(options), 5'000u);
}

}  // namespace
}  // namespace skein::plans
