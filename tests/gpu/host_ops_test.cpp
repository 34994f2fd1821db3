// The host's ops where float32 is short of digits, against float64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"
#include "plans/base/rng.hpp"

namespace skein::gpu {
namespace {

class HostOpsPrecision : public testing::Test {
 protected:
  ThreadPool pool_{1};
  HostOps ops_{pool_};
};

double gelu_slope(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  const double t = std::tanh(u);
  const double du = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du;
}

TEST_F(HostOpsPrecision, GelusSlopeFarFromZeroIsZeroOrOne) {
  std::vector<float> x;
  for (int i = -200; i <= 200; ++i) x.push_back(0.1F * static_cast<float>(i));
  std::vector<float> dy(x.size(), 1);
  ops_.gelu_backward(x.data(), dy.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(dy[i], gelu_slope(double{x[i]}), 2e-6) << x[i];
  }
}

TEST_F(HostOpsPrecision, ProbabilitiesOverALargeVocabularyAddUp) {
  constexpr int64_t kVocabulary = 50257;
  std::vector<float> logits(kVocabulary);
  // Most are far below the highest: each adds less than float32 keeps of the sum.
  for (int64_t i = 0; i < kVocabulary; ++i) {
    logits[static_cast<size_t>(i)] =
        static_cast<float>(5 * plans::random_normal(11, 1, static_cast<uint64_t>(i)));
  }
  const std::vector<int32_t> targets = {7};
  const auto highest = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit} - highest);
  std::vector<float> gradients = logits;
  double loss = 0;
  int64_t counted = 0;
  ops_.cross_entropy({targets, kVocabulary, kVocabulary, 1, &loss, &counted}, gradients.data());
  EXPECT_NEAR(loss, std::log(sum) + highest - double{logits[7]}, 1e-6);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double probability = std::exp(double{logits[i]} - highest) / sum;
    const double gradient = i == 7 ? probability - 1 : probability;
    ASSERT_NEAR(gradients[i], gradient, 2e-6 * probability + 1e-7) << i;
  }
}

TEST_F(HostOpsPrecision, ExactSumsHaveTheSameBitsInEveryOrder) {
  constexpr uint64_t kValues = 500;
  const double limit = kExactMax / kValues;
  std::vector<float> all;
  for (uint64_t i = 0; i < kValues; ++i) {
    // From far below the step up to the limit.
    const double size = limit * std::exp2(-60.0 * plans::random_uniform(7, 1, i));
    all.push_back(static_cast<float>(i % 2 == 0 ? size : -size));
  }
  all.push_back(
      static_cast<float>(0.5 * kExactStep));  // Rounds to the even multiple, which is none.
  double exact = 0;
  const auto sum_of = [&] {
    double sum = 0;
    for (float value : all) {
      ops_.move_to_sums({&value, &sum, 1, limit});
      EXPECT_EQ(value, 0) << "ready for the next one";
    }
    return sum;
  };
  for (float value : all) exact += std::nearbyint(value / kExactStep) * kExactStep;
  EXPECT_EQ(sum_of(), exact);
  plans::Rng rng(3, 1);
  for (int order = 0; order < 20; ++order) {
    for (size_t i = all.size(); i-- > 1;) std::swap(all[i], all[rng.below(i + 1)]);
    EXPECT_EQ(sum_of(), exact);
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(sum_of(), exact) << "also where sums become large meanwhile";
}

TEST_F(HostOpsPrecision, ExactSumsTakeNothingAboveTheirLimit) {
  const float far = std::nextafter(2.0F, 3.0F);
  std::vector<float> values = {2, -2, far, -far, INFINITY, NAN, 0};
  const auto count = static_cast<int64_t>(values.size());
  std::vector<double> sums(values.size(), 1);
  ops_.move_to_sums({values.data(), sums.data(), count, 2});
  EXPECT_EQ(sums[0], 3);
  EXPECT_EQ(sums[1], -1);
  for (int i = 2; i < 6; ++i) EXPECT_TRUE(std::isnan(sums[static_cast<size_t>(i)])) << i;
  EXPECT_EQ(sums[6], 1);
  std::vector<double> others(values.size(), 1);
  ops_.add_sums(sums.data(), others.data(), count);
  EXPECT_EQ(others[0], 4);
  EXPECT_TRUE(std::isnan(others[2]));
  ops_.round_sums(others.data(), values.data(), count);
  EXPECT_EQ(values[0], 4);
  EXPECT_TRUE(std::isnan(values[2]));
}

}  // namespace
}  // namespace skein::gpu
