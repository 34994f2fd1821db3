#include "plans/tokens/token_tuner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
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
  const auto tried = tune_tokens(search, options);
  ASSERT_TRUE(tried.ok()) << tried.status();
  const TunedTokens& best = tried->front();
  EXPECT_THAT(best.plan.level_workers[1], ElementsAre(WorkerId{3})) << "the fastest";
  EXPECT_GT(best.plan.shape.samples_of_token[1], best.plan.shape.samples_of_token[0]);
  EXPECT_TRUE(std::is_sorted(tried->begin(), tried->end(),
                             [](const auto& a, const auto& b) { return a.step_us < b.step_us; }));
  EXPECT_EQ(simulate_tokens(best.plan, options)->mean_step_us(), best.step_us);
}

TEST(TokenTuner, EachPhaseMayBeLeftOut) {
  const TokenSimulationOptions options = convolution_and_classifier();
  const std::vector<LayerRange> sub_models = {{0, 1}, {1, 2}};
  const auto all = tune_tokens({sub_models, 64, {}}, options);
  const auto shared_by_all = tune_tokens({sub_models, 64, {}, true, false}, options);
  const auto alike = tune_tokens({sub_models, 64, {}, false, false}, options);
  ASSERT_EQ(alike->size(), 1u);
  EXPECT_THAT(alike->front().plan.shape.samples_of_token, ElementsAre(16, 16));
  EXPECT_LT(all->front().step_us, shared_by_all->front().step_us);
  EXPECT_LE(shared_by_all->front().step_us, alike->front().step_us);
  for (const TunedTokens& each : *shared_by_all) EXPECT_EQ(each.plan.level_workers[1].size(), 4u);
}

/// 8198 is 2 x 4099: nobody may be told of 4099 inputs of one token.
TEST(TokenTuner, NoTokenHasMoreInputsThanMayBeNamed) {
  TokenSimulationOptions options = convolution_and_classifier();
  options.steps = 1;
  const auto tried = tune_tokens({{{0, 1}, {1, 2}}, 8198, {}, true, false}, options);
  ASSERT_TRUE(tried.ok()) << tried.status();
  for (const TunedTokens& each : *tried) {
    const std::vector<uint64_t>& sizes = each.plan.shape.samples_of_token;
    EXPECT_LE(sizes[1] / sizes[0], uint64_t{kTokenInputsMax}) << sizes[1] << " of " << sizes[0];
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
