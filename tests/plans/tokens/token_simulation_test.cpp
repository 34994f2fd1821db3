#include "plans/tokens/token_simulation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

constexpr double kForwardUs = 100, kBackwardUs = 200;  // What a row of a layer takes.
constexpr int64_t kRowBytes = 1000, kWeightBytes = 8000;
constexpr double kBytesPerUs = 10;

/// Two like layers, whose rows all take the same.
Profile two_layers() {
  Profile profile;
  profile.rows = {1};
  for (int n = 0; n < 2; ++n) {
    LayerProfile layer;
    layer.at = {{kForwardUs, kBackwardUs / 2, kBackwardUs / 2}};
    layer.activation_row_bytes = kRowBytes;
    layer.parameter_bytes = kWeightBytes;
    profile.layers.push_back(layer);
  }
  return profile;
}

TokenSimulationOptions options_of(std::vector<double> speeds) {
  TokenSimulationOptions options;
  options.profile = two_layers();
  options.speeds = std::move(speeds);
  options.bytes_per_second = kBytesPerUs * 1e6;
  options.steps = 3;
  return options;
}

std::vector<WorkerId> first(uint32_t count) {
  std::vector<WorkerId> workers;
  for (uint32_t id = 1; id <= count; ++id) workers.push_back({id});
  return workers;
}

/// One sub-model.
TokenPlan whole_model(uint64_t samples, uint64_t each, uint32_t workers) {
  return {{{0, 2}}, {samples, {each}}, {first(workers)}, {}};
}

double ring_us(double count, double bytes) { return 2 * (count - 1) / count * bytes / kBytesPerUs; }

/// The deeper layer is reduced while the backward is at the other one.
TEST(TokenSimulation, ATokenForEachOfAllIsDataParallel) {
  const auto result = simulate_tokens(whole_model(8, 2, 4), options_of({1, 1, 1, 1}));
  ASSERT_TRUE(result.ok()) << result.status();
  const double step_us = 2 * 2 * kForwardUs + 2 * kBackwardUs + ring_us(4, 2 * kWeightBytes);
  for (double each_us : result->step_us) EXPECT_DOUBLE_EQ(each_us, step_us);
  EXPECT_EQ(result->moved_bytes, 0);
}

TEST(TokenSimulation, ABackwardThatRecomputesTakesTheForwardOnceMore) {
  TokenSimulationOptions options = options_of({1});
  options.recompute = true;
  const auto result = simulate_tokens(whole_model(4, 1, 1), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_DOUBLE_EQ(result->step_us.front(), 4 * 2 * (2 * kForwardUs + kBackwardUs));
  // The deeper layer is there when half of the backward is over.
  options.speeds = {1, 1};
  EXPECT_DOUBLE_EQ(simulate_tokens(whole_model(2, 1, 2), options)->step_us.front(),
                   2 * kForwardUs + kForwardUs + kBackwardUs + 2 * ring_us(2, kWeightBytes));
}

TEST(TokenSimulation, WhoIsFasterPullsMore) {
  const auto result = simulate_tokens(whole_model(8, 1, 2), options_of({1, 3}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_DOUBLE_EQ(result->step_us.front(), 2 * 2 * (kForwardUs + kBackwardUs) - kBackwardUs / 3 +
                                                ring_us(2, 2 * kWeightBytes));
}

TEST(TokenSimulation, NobodyWaitsForWhoSleeps) {
  TokenSimulationOptions options = options_of({1, 1});
  options.scenario = parse_scenario("H3 sleep=100000").value();
  const auto result = simulate_tokens(whole_model(4, 1, 2), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_DOUBLE_EQ(result->step_us.front(),
                   4 * 2 * (kForwardUs + kBackwardUs) - kBackwardUs + ring_us(2, 2 * kWeightBytes));
}

TEST(TokenSimulation, ASleeperIsWaitedForWhereItHasAPartInTheSum) {
  TokenSimulationOptions options = options_of({1, 1});
  constexpr double kSleepUs = 100'000;
  options.scenario = *parse_scenario("H3 sleep=100000");
  options.follows_training_mode = true;
  const auto result = simulate_tokens(whole_model(16, 1, 2), options);
  ASSERT_TRUE(result.ok()) << result.status();
  for (double each_us : result->step_us) {
    EXPECT_GE(each_us, kSleepUs);
    EXPECT_LT(each_us, kSleepUs + 8 * (kForwardUs + kBackwardUs))
        << "its work was done by the other";
  }
}

/// Others would have computed the second one long before it does.
TEST(TokenSimulation, ASlowWorkerClaimsNothingAheadThatItKeepsFromOthers) {
  TokenSimulationOptions options = options_of({0.1, 1, 1, 1, 1, 1, 1, 1});
  options.follows_training_mode = true;
  options.steps = 4;
  const auto result = simulate_tokens(whole_model(64, 1, 8), options);
  ASSERT_TRUE(result.ok()) << result.status();
  const double slow_us = 10 * 2 * (kForwardUs + kBackwardUs);
  const double rings_us = 2 * ring_us(8, kWeightBytes);
  EXPECT_DOUBLE_EQ(result->step_us.front(), 2 * slow_us + rings_us);
  for (uint32_t step = 1; step < 4; ++step) {
    EXPECT_DOUBLE_EQ(result->step_us[step], slow_us + rings_us) << step;
  }
}

/// Only what is in a deeper sub-model is reduced while the backward is at the other layer.
TEST(TokenSimulation, TheTrainingModeReducesASubModelWhenItsLastBackwardHasEnded) {
  TokenSimulationOptions options = options_of({1, 1, 1, 1});
  options.follows_training_mode = true;
  const double work_us = 2 * 2 * (kForwardUs + kBackwardUs);
  const auto whole = simulate_tokens(whole_model(8, 2, 4), options);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (double each_us : whole->step_us) {
    EXPECT_DOUBLE_EQ(each_us, work_us + 2 * ring_us(4, kWeightBytes));
  }
  const TokenPlan cut{{{0, 1}, {1, 2}}, {8, {2, 2}}, {first(4), first(4)}, {}};
  const auto in_two = simulate_tokens(cut, options);
  ASSERT_TRUE(in_two.ok()) << in_two.status();
  ASSERT_GT(ring_us(4, kWeightBytes), 2 * kBackwardUs) << "it is not hidden whole";
  for (double each_us : in_two->step_us) {
    EXPECT_DOUBLE_EQ(each_us, work_us - 2 * kBackwardUs + 2 * ring_us(4, kWeightBytes));
  }
}

/// The first worker has the data and the second one the end: the last output goes over, and the
/// gradient comes back.
TEST(TokenSimulation, OutputsAndGradientsTravelBetweenLevels) {
  const TokenPlan plan{{{0, 1}, {1, 2}}, {2, {2, 2}}, {first(2), {{2}}}, {}};
  TokenSimulationOptions options = options_of({1, 1});
  options.latency_us = 5;
  const auto result = simulate_tokens(plan, options);
  ASSERT_TRUE(result.ok()) << result.status();
  const double travel_us = 2 * kRowBytes / kBytesPerUs + options.latency_us;
  const double step_us = 2 * 2 * (kForwardUs + kBackwardUs) + 2 * travel_us +
                         ring_us(2, kWeightBytes) + 2 * options.latency_us;
  EXPECT_DOUBLE_EQ(result->step_us.front(), step_us);
  EXPECT_EQ(result->moved_bytes, 3 * 2 * 2 * kRowBytes);
}

TEST(TokenSimulation, AWishForTheNextTokenIsHiddenByTheOneInHand) {
  TokenSimulationOptions options = options_of({1});
  options.request_us = 50;
  const TokenPlan plan = whole_model(4, 1, 1);
  const double work_us = 4 * 2 * (kForwardUs + kBackwardUs);
  EXPECT_DOUBLE_EQ(simulate_tokens(plan, options)->step_us.front(), work_us + options.request_us);
  options.claims_ahead = 1;  // Its backward hides that, too, but for the first one.
  EXPECT_LE(simulate_tokens(plan, options)->step_us.front(), work_us + 4 * options.request_us);
}

TEST(TokenSimulation, SaysWhatDoesNotFit) {
  const TokenSimulationOptions options = options_of({1, 1});
  const auto text = [&](const TokenPlan& plan) {
    return std::string(simulate_tokens(plan, options).status().message());
  };
  EXPECT_THAT(text({{{0, 1}}, {2, {1}}, {first(2)}, {}}), HasSubstr("1 layers of 2"));
  EXPECT_THAT(text({{{0, 1}, {0, 2}}, {2, {1, 1}}, {first(2), first(2)}, {}}),
              HasSubstr("begins with layer 0 instead of 1"));
  EXPECT_THAT(text({{{0, 2}}, {2, {1, 1}}, {first(2)}, {}}), HasSubstr("for 2 and 1 levels of 1"));
  EXPECT_THAT(text({{{0, 2}}, {2, {1}}, {{{3}}}, {}}), HasSubstr("do not exist"));
  const LevelWorkers twice = {std::vector<WorkerId>{{1}, {1}}};
  EXPECT_THAT(text({{{0, 2}}, {2, {1}}, twice, {}}), HasSubstr("one of them twice"));
  EXPECT_THAT(text({{{0, 2}}, {2, {1}}, {first(1)}, {}}), HasSubstr("the first level"));
  EXPECT_THAT(text({{{0, 2}}, {0, {1}}, {first(2)}, {}}), HasSubstr("has no samples"));
  EXPECT_THAT(text({{{0, 2}}, {2, {0}}, {first(2)}, {}}), HasSubstr("tokens of 0 samples"));
  EXPECT_THAT(text({{{0, 1}, {1, 2}}, {6, {2, 3}}, {first(2), first(2)}, {}}),
              HasSubstr("tokens of 3 samples are not made of whole ones of 2"));
}

}  // namespace
}  // namespace skein::plans
