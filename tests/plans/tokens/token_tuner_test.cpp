#include "plans/tokens/token_tuner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A layer of much work and few weights, and one of little work that takes the same for up to 64
/// rows, and whose weights are as much as the network moves in ten steps' work.
TokenSimulationOptions convolution_and_classifier() {
  TokenSimulationOptions options;
  Profile& profile = options.profile;
  profile.rows = {1, 64, 128};
  profile.layers.resize(2);
  profile.layers[0].at = {{100, 100, 100}, {6400, 6400, 6400}, {12800, 12800, 12800}};
  profile.layers[0].activation_row_bytes = 1000;
  profile.layers[0].parameter_bytes = 10'000;
  profile.layers[1].at = {{640, 640, 640}, {640, 640, 640}, {1280, 1280, 1280}};
  profile.layers[1].parameter_bytes = 20'000'000;
  options.speeds = {1, 1, 2, 1};
  options.bytes_per_second = 1e9;
  options.steps = 2;
  return options;
}

TEST(TokenTuner, AFewTakeInLargeTokensWhatWouldCostMostToReduce) {
  const TokenSimulationOptions options = convolution_and_classifier();
  const TokenSearch search{{{0, 1}, {1, 2}}, 64, {}};
  const auto tuning = tune_tokens(search, options);
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  const TunedTokens& best = tuning->tried.front();
  EXPECT_THAT(best.plan.level_workers[1], ElementsAre(WorkerId{3})) << "the fastest";
  EXPECT_GT(best.plan.shape.samples_of_token[1], best.plan.shape.samples_of_token[0]);
  EXPECT_TRUE(std::is_sorted(tuning->tried.begin(), tuning->tried.end(),
                             [](const auto& a, const auto& b) { return a.step_us < b.step_us; }));
  EXPECT_EQ(simulate_tokens(best.plan, options)->mean_step_us(), best.step_us);
}

TEST(TokenTuner, EachPhaseMayBeLeftOut) {
  const TokenSimulationOptions options = convolution_and_classifier();
  const std::vector<LayerRange> sub_models = {{0, 1}, {1, 2}};
  const auto all = tune_tokens({sub_models, 64, {}}, options);
  const auto shared_by_all = tune_tokens({sub_models, 64, {}, true, false}, options);
  const auto alike = tune_tokens({sub_models, 64, {}, false, false}, options);
  ASSERT_EQ(alike->tried.size(), 1u);
  EXPECT_THAT(alike->tried.front().plan.shape.samples_of_token, ElementsAre(16, 16));
  EXPECT_LT(all->tried.front().step_us, shared_by_all->tried.front().step_us);
  EXPECT_LE(shared_by_all->tried.front().step_us, alike->tried.front().step_us);
  for (const TunedTokens& each : shared_by_all->tried) {
    EXPECT_EQ(each.plan.level_workers[1].size(), 4u);
  }
}

/// 8198 is 2 x 4099: nobody may be told of 4099 inputs of one token.
TEST(TokenTuner, NoTokenHasMoreInputsThanMayBeNamed) {
  TokenSimulationOptions options = convolution_and_classifier();
  options.steps = 1;
  const auto tuning = tune_tokens({{{0, 1}, {1, 2}}, 8198, {}, true, false}, options);
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  for (const TunedTokens& each : tuning->tried) {
    const std::vector<uint64_t>& sizes = each.plan.shape.samples_of_token;
    EXPECT_LE(sizes[1] / sizes[0], uint64_t{kTokenInputsMax}) << sizes[1] << " of " << sizes[0];
  }
}

/// A quarter of an even share is 8 samples, of which the slow worker would be granted two at once.
TEST(TokenTuner, TokensAreAsFineAsTheSlowestWorkerNeedsThem) {
  TokenSimulationOptions options;
  options.profile.rows = {1};
  options.profile.layers.resize(1);
  options.profile.layers[0].at = {{100, 100, 100}};
  options.speeds = {0.4, 0.4, 0.1};
  options.bytes_per_second = 1e9;
  options.follows_training_mode = true;
  options.steps = 3;
  const auto tuning = tune_tokens({{{0, 1}}, 96, {}}, options);
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  const double ideal_us = 96 * 300 / (0.4 + 0.4 + 0.1);
  EXPECT_LE(tuning->tried.front().step_us, 1.3 * ideal_us);
  EXPECT_LT(tuning->tried.front().plan.shape.samples_of_token[0], 8u);
}

TokenSearch by_thresholds(uint64_t samples) { return {{{0, 1}, {1, 2}}, samples, {}}; }

/// 24 pairs of sizes for either kind, and sets of workers beside them, up to 8000 tokens a step.
TEST(TokenTuner, AThousandWorkersTakeNoMoreWorkThanIsAllowed) {
  TokenSimulationOptions options = convolution_and_classifier();
  options.speeds.assign(1000, 1.0);
  options.steps = 1;
  TokenSearch search = by_thresholds(8000);
  search.work_max = 16'000'000;
  const auto tuning = tune_tokens(search, options);
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  int64_t work = 0;
  for (const TunedTokens& each : tuning->tried) work += simulation_work(each.plan.shape, options);
  EXPECT_EQ(tuning->work, work);
  EXPECT_LE(work, search.work_max);
  EXPECT_GT(tuning->left_out, 48u);
  const auto has_deepest = [&](size_t workers) {
    return std::any_of(tuning->tried.begin(), tuning->tried.end(), [&](const TunedTokens& each) {
      return each.plan.level_workers[1].size() == workers;
    });
  };
  EXPECT_TRUE(has_deepest(1000) && has_deepest(1) && has_deepest(500)) << "some of each phase";
  for (const TunedTokens& each : tuning->tried) {
    EXPECT_EQ(each.plan.shape.samples_of_token[0], 8u) << "coarse ones go first";
  }
  search.work_max = 0;
  EXPECT_EQ(tune_tokens(search, options)->tried.size(), 2u) << "the coarsest of either kind";
}

TEST(TokenTuner, EightWorkersTryAllThereIs) {
  TokenSimulationOptions options = convolution_and_classifier();
  options.speeds = {1, 1, 2, 1, 1, 3, 1, 1};
  TokenSearch search = by_thresholds(64);
  const auto limited = tune_tokens(search, options);
  search.work_max = std::numeric_limits<int64_t>::max();
  const auto unlimited = tune_tokens(search, options);
  ASSERT_TRUE(limited.ok() && unlimited.ok());
  EXPECT_EQ(limited->left_out, 0u);
  ASSERT_EQ(limited->tried.size(), unlimited->tried.size());
  for (size_t n = 0; n < limited->tried.size(); ++n) {
    const TokenPlan &a = limited->tried[n].plan, &b = unlimited->tried[n].plan;
    EXPECT_EQ(a.shape.samples_of_token, b.shape.samples_of_token);
    EXPECT_EQ(a.level_workers, b.level_workers);
    EXPECT_EQ(limited->tried[n].step_us, unlimited->tried[n].step_us);
  }
}

/// A prime number.
TEST(TokenTuner, AStepOfTooManyTokensIsRefused) {
  const auto tried = tune_tokens({{{0, 1}, {1, 2}}, 262'147, {}}, convolution_and_classifier());
  EXPECT_EQ(tried.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tried.status().message()),
              HasSubstr("training.global_batch_size = 262147"));
}

}  // namespace
}  // namespace skein::plans
