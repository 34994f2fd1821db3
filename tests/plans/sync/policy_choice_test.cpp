#include "plans/sync/policy_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plans/simulator/policy_simulation.hpp"
#include "plans/sync/sync_watch.hpp"

namespace skein::plans {
namespace {

constexpr double kStepUs = 60000;
const std::vector<SyncCandidate> kCandidates = {{}, {.local_steps = 1}, {.local_steps = 4}};
const ChooserOptions kUnlike{.parts_are_unlike = true};

StragglerProfile calm(const PipelineLayout& layout) {
  StragglerProfile profile{.layout = layout, .exchange_us = 20000, .hidden_us = 40000};
  profile.forward_us.assign(layout.stages, 20000);
  profile.backward_us.assign(layout.stages, 40000);
  profile.slowness.assign(layout.pipelines, 1);
  return profile;
}

StragglerProfile stalling(const PipelineLayout& layout) {
  StragglerProfile profile = calm(layout);
  profile.stall_rate = 0.1;
  profile.stall_us = 2 * kStepUs;
  return profile;
}

const ChooserOptions kAdaptive{.is_adaptive = true};

TEST(PolicyChoice, StaysSynchronousWhenNothingDisturbsAndExchangesAreHidden) {
  for (const PipelineLayout& layout : {PipelineLayout{2, 1}, {8, 1}, {4, 4}}) {
    for (const ChooserOptions& options : {ChooserOptions{}, kUnlike, kAdaptive}) {
      const SyncChoice choice = choose_sync(calm(layout), kCandidates, options);
      EXPECT_EQ(choice.candidate, kCandidates[0]) << choice.reason;
    }
  }
}

TEST(PolicyChoice, SparesExchangesThatAreDearUnlessStepsBecomeDearer) {
  StragglerProfile profile = calm({8, 1});
  profile.hidden_us = 0;
  EXPECT_TRUE(choose_sync(profile, kCandidates, {}).candidate.runs_pipelines());
  StragglerProfile cheap = profile;
  cheap.exchange_us = 5000;
  EXPECT_FALSE(choose_sync(cheap, kCandidates, kAdaptive).candidate.runs_pipelines());
}

TEST(PolicyChoice, ChoosesLocalUpdatesWhenOneIsSlowOrAllStall) {
  StragglerProfile slow = calm({8, 1});
  slow.slowness[0] = 4;
  for (const StragglerProfile& profile : {slow, stalling({8, 1}), stalling({4, 4})}) {
    for (const ChooserOptions& options : {ChooserOptions{}, kUnlike, kAdaptive}) {
      const SyncChoice choice = choose_sync(profile, kCandidates, options);
      EXPECT_TRUE(choice.candidate.runs_pipelines()) << choice.reason;
    }
  }
}

TEST(PolicyChoice, OnlyAllreduceKeepsReplicasTogether) {
  const SyncChoice choice = choose_sync(stalling({8, 1}), kCandidates, kUnlike);
  EXPECT_EQ(choice.predictions[0].consensus_distance, 0);
  EXPECT_GT(choice.predictions[1].consensus_distance, 0.3);
  EXPECT_GT(choice.predictions[2].consensus_distance, choice.predictions[1].consensus_distance);
}

TEST(PolicyChoice, SaysWhy) {
  const std::string reason = choose_sync(stalling({8, 1}), kCandidates, {}).reason;
  for (const char* part : {"overlapped k=", "all-reduce=1", "10 % of pieces stall for 120000 us"}) {
    EXPECT_THAT(reason, testing::HasSubstr(part));
  }
}

TEST(PolicyChoice, TellsSlowPipelinesFromStalls) {
  StragglerProfile profile = calm({4, 1});
  std::vector<std::vector<double>> steps_us(4, std::vector<double>(20, kStepUs));
  for (double& each_us : steps_us[1]) each_us = 3 * kStepUs;
  measure_stragglers(steps_us, profile);
  EXPECT_THAT(profile.slowness, testing::ElementsAre(1, 3, 1, 1));
  EXPECT_EQ(profile.stall_rate, 0);
  EXPECT_EQ(profile.stall_us, 0);
  for (size_t pipeline = 0; pipeline < 4; ++pipeline) steps_us[pipeline][pipeline] += 5 * kStepUs;
  measure_stragglers(steps_us, profile);
  EXPECT_THAT(profile.slowness, testing::ElementsAre(1, 3, 1, 1));
  EXPECT_NEAR(profile.stall_rate, 0.025, 0.001);  // 4 of 80 steps, each of two pieces.
  EXPECT_NEAR(profile.stall_us, 5 * kStepUs, 0.02 * kStepUs * 5);
}

TEST(PolicyChoice, StallsThatAreKnownCountHoweverShortTheyAre) {
  StragglerProfile profile = calm({2, 1});
  std::vector<std::vector<double>> steps_us(2, std::vector<double>(20, kStepUs));
  for (size_t step = 0; step < 15; ++step) steps_us[1][step] += 0.2 * kStepUs;
  measure_stalls(steps_us, std::vector<double>{kStepUs, kStepUs}, profile);
  EXPECT_THAT(profile.slowness, testing::ElementsAre(1, 1));
  EXPECT_NEAR(2 * profile.stall_rate * profile.stall_us, 0.2 * kStepUs * 15 / 40, 1);
}

TEST(PolicyChoice, ChangesOnlyAfterPatience) {
  SyncChooser chooser({.patience = {.looks_min = 3}}, kCandidates, kCandidates[0]);
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
  SyncChooser chooser({.patience = {.gain_min = 10, .looks_min = 1}}, kCandidates, kCandidates[0]);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(chooser.observe(stalling({8, 1})));
}

TEST(PolicyChoice, ValuesStepsLessTheFurtherApartTheyAreDone) {
  for (const DriftKind& kind : {DriftKind{}, {true, false}, {true, true}}) {
    EXPECT_EQ(progress_per_step(0, kind), 1);
    DriftKind adaptive = kind;
    adaptive.is_adaptive = true;
    EXPECT_EQ(progress_per_step(1, adaptive), progress_per_step(1, kind)) << "of one";
    for (double before = progress_per_step(1, kind); adaptive.pipelines < 64;) {
      adaptive.pipelines *= 2;
      EXPECT_LT(progress_per_step(1, adaptive), before);
      before = progress_per_step(1, adaptive);
    }
    for (double apart = 0.1; apart < 100; apart *= 2) {
      EXPECT_LT(progress_per_step(2 * apart, kind), progress_per_step(apart, kind));
      EXPECT_LE(progress_per_step(apart, {true, true}), progress_per_step(apart, {}));
      if (apart < 10) {
        EXPECT_LE(progress_per_step(apart, {true, false}), progress_per_step(apart, {true, true}));
      }
    }
  }
}

/// Steps of eight pipeline replicas as `slowness` and a stall of every tenth say.
std::optional<SyncChoice> watch_for(SyncWatch& watch, uint64_t steps, double slowest, bool stalls) {
  for (uint64_t step = 0; step < steps; ++step) {
    for (uint32_t pipeline = 0; pipeline < 8; ++pipeline) {
      const bool is_stalled = stalls && (step + 3 * pipeline) % 10 == 0;
      const double factor = (pipeline == 0 ? slowest : 1) + (is_stalled ? 2 : 0);
      watch.on_step(pipeline, static_cast<uint64_t>(factor * kStepUs));
    }
    watch.on_added(2000);
    if (auto choice = watch.look()) return choice;
  }
  return std::nullopt;
}

TEST(SyncWatch, ChangesForStragglersAndBackWhenTheyAreGone) {
  for (const bool is_adaptive : {false, true}) {
    SyncWatchOptions options;
    options.chooser.is_adaptive = is_adaptive;
    SyncWatch watch({8, 1}, options, {});
    EXPECT_FALSE(watch_for(watch, 40, 1, false));
    const auto loose = watch_for(watch, 200, 4, false);
    ASSERT_TRUE(loose);
    EXPECT_TRUE(loose->candidate.runs_pipelines());
    EXPECT_THAT(loose->reason, testing::HasSubstr("slowest pipeline replica 4 times the fastest"));
    const auto tight = watch_for(watch, 400, 1, false);
    ASSERT_EQ(tight.has_value(), is_adaptive);  // Else the exchange's 2 ms keep them apart.
    if (tight) {
      EXPECT_FALSE(tight->candidate.runs_pipelines());
    }
  }
}

TEST(SyncWatch, SeesStallsSoon) {
  SyncWatch watch({8, 1}, {}, {});
  EXPECT_TRUE(watch_for(watch, 10, 1, true));
}

TEST(SyncWatch, WaitsUntilAllPipelinesAreKnown) {
  SyncWatch watch({2, 1}, {}, {});
  for (int step = 0; step < 100; ++step) {
    watch.on_step(0, 1000 + 5000 * static_cast<uint64_t>(step % 2));
    EXPECT_FALSE(watch.look());
  }
}

TEST(SyncWatch, NeverLooksAtASinglePipeline) {
  SyncWatch watch({1, 3}, {}, {});
  for (uint64_t step = 0; step < 100; ++step) watch.on_step(0, 1000 * (1 + step % 5));
  EXPECT_FALSE(watch.look());
}

}  // namespace
}  // namespace skein::plans
