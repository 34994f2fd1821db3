#include "cli/verbs/draw_token.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace skein::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Probabilities 0.1, 0.4, 0.2 and 0.3.
const std::vector<float> kLogits = {std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)};

std::set<int32_t> drawn(const Sampling& sampling) {
  plans::Rng rng(1);
  std::set<int32_t> tokens;
  for (int n = 0; n < 400; ++n) tokens.insert(draw_token(kLogits, sampling, rng).value());
  return tokens;
}

TEST(DrawToken, TopPKeepsTheFewestLikeliestThatReachIt) {
  EXPECT_THAT(drawn({1, 0, 0.35}), ElementsAre(1));
  EXPECT_THAT(drawn({1, 0, 0.6}), ElementsAre(1, 3));
  EXPECT_THAT(drawn({1, 0, 0.85}), ElementsAre(1, 2, 3));
  EXPECT_THAT(drawn({1, 0, 1}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(drawn({1, 0, 1e-9}), ElementsAre(1));
}

TEST(DrawToken, TopPCountsAmongTheTopK) {
  // Of 0.4 and 0.3 the first has 0.57.
  EXPECT_THAT(drawn({1, 2, 0.55}), ElementsAre(1));
  EXPECT_THAT(drawn({1, 2, 0.6}), ElementsAre(1, 3));
}

TEST(DrawToken, DrawsInProportionAfterTopP) {
  plans::Rng rng(3);
  int first = 0;
  for (int n = 0; n < 7000; ++n) first += draw_token(kLogits, {1, 0, 0.6}, rng).value() == 1;
  EXPECT_NEAR(first, 4000, 200);
}

TEST(DrawToken, TakesTheFirstOfTheLikeliestWithoutTemperature) {
  plans::Rng rng(1);
  EXPECT_EQ(draw_token(std::vector<float>{1, 3, 3, 2}, {0, 1, 0.5}, rng).value(), 1);
}

TEST(DrawToken, RefusesLogitsThatAreNoNumbers) {
  plans::Rng rng(1);
  const std::vector<float> logits = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(std::string(draw_token(logits, {}, rng).status().message()), HasSubstr("token 1"));
}

TEST(DrawToken, NamesTheOptionThatIsOutOfRange) {
  EXPECT_THAT(std::string(check(Sampling{-1, 0, 1}).message()), HasSubstr("--temperature"));
  EXPECT_THAT(std::string(check(Sampling{std::nan(""), 0, 1}).message()),
              HasSubstr("--temperature"));
  EXPECT_THAT(std::string(check(Sampling{1, -1, 1}).message()), HasSubstr("--top-k"));
  for (const double top_p : {0.0, 1.1, std::nan("")}) {
    EXPECT_THAT(std::string(check(Sampling{1, 0, top_p}).message()), HasSubstr("--top-p"));
  }
}

}  // namespace
}  // namespace skein::cli
