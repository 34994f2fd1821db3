#include "plans/sync/policy_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plans/simulator/policy_simulation.hpp"
#include "plans/sync/adaptive_sdpipe.hpp"

namespace skein::plans {
namespace {

using Kind = SyncCandidate::Kind;

constexpr double kStepUs = 60000;
const std::vector<SyncCandidate> kCandidates = {
    {Kind::kAllreduce, 0}, {Kind::kSdpipe, 2}, {Kind::kSdpipe, 10}};
const ChooserOptions kUnlike{.parts_are_unlike = true};

StragglerProfile calm(const ColumnLayout& layout) {
  StragglerProfile profile{.layout = layout, .exchange_us = 20000};
  profile.forward_us.assign(layout.stages, 20000);
  profile.backward_us.assign(layout.stages, 40000);
  profile.slowness.assign(layout.columns, 1);
  return profile;
}

StragglerProfile stalling(const ColumnLayout& layout) {
  StragglerProfile profile = calm(layout);
  profile.stall_rate = 0.1;
  profile.stall_us = 2 * kStepUs;
  return profile;
}

TEST(PolicyChoice, StaysSynchronousWhenNothingDisturbs) {
  for (const ColumnLayout& layout : {ColumnLayout{2, 1}, {8, 1}, {4, 4}}) {
    for (const bool is_unlike : {false, true}) {
      const SyncChoice choice =
          choose_sync(calm(layout), kCandidates, {.parts_are_unlike = is_unlike});
      EXPECT_EQ(choice.candidate, kCandidates[0]) << choice.reason;
    }
  }
}

TEST(PolicyChoice, LoosensWhenColumnsStallButNotOnUnlikeParts) {
  const SyncChoice loose = choose_sync(stalling({8, 1}), kCandidates, {});
  EXPECT_EQ(loose.candidate.kind, Kind::kSdpipe) << loose.reason;
  EXPECT_EQ(choose_sync(stalling({8, 1}), kCandidates, kUnlike).candidate, kCandidates[0]);
}

TEST(PolicyChoice, LoosensOnUnlikePartsIfTheOthersStayTogether) {
  StragglerProfile profile = calm({8, 1});
  profile.slowness[0] = 4;  // The other seven meet in every step.
  EXPECT_EQ(choose_sync(profile, kCandidates, kUnlike).candidate.kind, Kind::kSdpipe);
}

TEST(PolicyChoice, OnlyAllreduceKeepsReplicasTogetherUnderStalls) {
  const SyncChoice choice = choose_sync(stalling({8, 1}), kCandidates, kUnlike);
  EXPECT_EQ(choice.predictions[0].disagreement, 0);
  EXPECT_GT(choice.predictions[1].disagreement, 0.3);
  EXPECT_GT(choice.predictions[2].disagreement, choice.predictions[1].disagreement);
}

TEST(PolicyChoice, SaysWhy) {
  const std::string reason = choose_sync(stalling({8, 1}), kCandidates, {}).reason;
  for (const char* part : {"SDPipe P=", "all-reduce=1", "10 % of pieces stall for 120000 us"}) {
    EXPECT_THAT(reason, testing::HasSubstr(part));
  }
}

TEST(PolicyChoice, TellsSlowColumnsFromStalls) {
  StragglerProfile profile = calm({4, 1});
  std::vector<std::vector<double>> steps_us(4, std::vector<double>(20, kStepUs));
  for (double& each_us : steps_us[1]) each_us = 3 * kStepUs;
  measure_stragglers(steps_us, profile);
  EXPECT_THAT(profile.slowness, testing::ElementsAre(1, 3, 1, 1));
  EXPECT_EQ(profile.stall_rate, 0);
  EXPECT_EQ(profile.stall_us, 0);
  for (size_t column = 0; column < 4; ++column) steps_us[column][column] += 5 * kStepUs;
  measure_stragglers(steps_us, profile);
  EXPECT_THAT(profile.slowness, testing::ElementsAre(1, 3, 1, 1));
  EXPECT_NEAR(profile.stall_rate, 0.025, 0.001);  // 4 of 80 steps, each of two pieces.
  EXPECT_NEAR(profile.stall_us, 5 * kStepUs, 0.02 * kStepUs * 5);
}

TEST(PolicyChoice, ChangesOnlyAfterPatience) {
  SyncChooser chooser({.patience = 3}, kCandidates, kCandidates[0]);
  const StragglerProfile profile = stalling({8, 1});
  EXPECT_FALSE(chooser.observe(profile));
  EXPECT_FALSE(chooser.observe(profile));
  EXPECT_FALSE(chooser.observe(calm({8, 1})));  // Begins anew.
  EXPECT_FALSE(chooser.observe(profile));
  EXPECT_FALSE(chooser.observe(profile));
  const auto choice = chooser.observe(profile);
  ASSERT_TRUE(choice);
  EXPECT_EQ(chooser.now(), choice->candidate);
  EXPECT_FALSE(chooser.observe(profile));
}

TEST(PolicyChoice, DoesNotChangeForLittle) {
  SyncChooser chooser({.gain_min = 10, .patience = 1}, kCandidates, kCandidates[0]);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(chooser.observe(stalling({8, 1})));
}

TEST(PolicyChoice, StepsAloneWhereExchangesAreDear) {
  const std::vector<SyncCandidate> candidates = {{Kind::kSdpipe, 10, 1}, {Kind::kSdpipe, 10, 2}};
  StragglerProfile profile = calm({8, 1});
  for (const double exchange_us : {0.0, 100.0, 5000.0, 20000.0}) {
    profile.exchange_us = exchange_us;
    const SyncChoice choice = choose_sync(profile, candidates, {});
    EXPECT_EQ(choice.candidate.local_steps, exchange_us < 1000 ? 1u : 2u) << choice.reason;
  }
}

TEST(PolicyChoice, PaysForMomentsOnUnlikePartsOnly) {
  const std::vector<SyncCandidate> candidates = {{Kind::kSdpipe, 10, 2}};
  StragglerProfile profile = calm({8, 1});
  profile.moments_per_weight = 1;
  const double like = choose_sync(profile, candidates, {}).predictions[0].steps_per_second;
  const double unlike = choose_sync(profile, candidates, kUnlike).predictions[0].steps_per_second;
  EXPECT_NEAR(like, 16 / 0.155, 1);
  EXPECT_NEAR(unlike, 16 / 0.190, 1);
}

TEST(PolicyChoice, ValuesStepsLessTheFurtherApartTheyAreDone) {
  for (const DriftKind& kind : {DriftKind{}, {true, false}, {true, true}}) {
    EXPECT_EQ(progress_per_step(0, kind), 1);
    for (double apart = 0.1; apart < 100; apart *= 2) {
      EXPECT_LT(progress_per_step(2 * apart, kind), progress_per_step(apart, kind));
      EXPECT_LE(progress_per_step(apart, {true, true}), progress_per_step(apart, {}));
      if (apart < 10) {
        EXPECT_LE(progress_per_step(apart, {true, false}), progress_per_step(apart, {true, true}));
      }
    }
  }
}

struct AdaptiveRun {
  uint64_t period = 0, local_steps = 0;
  size_t changes = 0;
  double steps_per_second = 0;
};

AdaptiveRun run_adaptive(const ColumnScenario& scenario, uint64_t first, bool is_unlike,
                         double exchange_us = 20000) {
  const ColumnLayout layout{8, 1};
  AdaptiveSdpipeOptions options;
  options.sdpipe.period = first;
  options.profile = calm(layout);
  options.profile.exchange_us = exchange_us;
  options.profile.moments_per_weight = 1;
  options.chooser.parts_are_unlike = is_unlike;
  AdaptiveSdpipePolicy policy(layout, options);
  PolicySimulationOptions simulation{.layout = layout, .scenario = scenario};
  simulation.forward_us = options.profile.forward_us;
  simulation.backward_us = options.profile.backward_us;
  simulation.exchange_us = exchange_us;
  simulation.moments_per_weight = 1;
  simulation.duration_us = 120e6;
  const PolicySimulation result = simulate_policy(policy, simulation);
  EXPECT_FALSE(result.is_stuck);
  return {policy.period(), policy.local_steps(), policy.change_count(), result.steps_per_second};
}

const ColumnScenario kStalls = sleeping_pieces(2 * kStepUs, kStepUs, 1);
constexpr double kAllreduceUnderStalls = 40;  // Steps a second.

TEST(AdaptiveSdpipe, LoosensUnderStallsAndStaysThere) {
  const AdaptiveRun run = run_adaptive(kStalls, 1, false);
  EXPECT_GT(run.period, 1u);
  EXPECT_LE(run.changes, 4u);
  EXPECT_GT(run.steps_per_second, 1.5 * kAllreduceUnderStalls);
}

TEST(AdaptiveSdpipe, SparesExchangesWhenNothingDisturbs) {
  const AdaptiveRun dear = run_adaptive(homogeneous(), 10, false);
  EXPECT_GT(dear.local_steps, 1u);
  EXPECT_GT(dear.steps_per_second, 1.2 * 8 / 0.095);
  const AdaptiveRun cheap = run_adaptive(homogeneous(), 10, false, 100);
  EXPECT_EQ(cheap.local_steps, 1u);
  EXPECT_NEAR(cheap.steps_per_second, 8 / 0.060175, 0.5);
}

TEST(AdaptiveSdpipe, IsSynchronousOnUnlikePartsUnlessStragglersMakeThatDear) {
  const AdaptiveRun calm_run = run_adaptive(homogeneous(), 1, true);
  EXPECT_EQ(calm_run.period, 1u);
  EXPECT_EQ(calm_run.local_steps, 1u);
  EXPECT_NEAR(calm_run.steps_per_second, 8 / 0.095, 0.5);
  const AdaptiveRun stalled = run_adaptive(kStalls, 1, true);
  EXPECT_GT(stalled.local_steps, 1u);
  EXPECT_LE(stalled.period, 2u);
  EXPECT_GT(stalled.steps_per_second, 1.2 * kAllreduceUnderStalls);
}

}  // namespace
}  // namespace skein::plans
