// Adasum keeps the learning rate of one rank at larger batches (Maleki et al., MLSys'21): it is
// faster than the mean, and stays where the sum diverges.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <vector>

#include "net/reduce/reducer.hpp"
#include "plans/base/rng.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

using plans::ReducerKind;
using Vector = std::vector<float>;

/// Linear regression in D dimensions, of which two are 6 times as wide as the others: the sum of
/// many ranks' gradients is too long a step in these, the mean too short a one in the others.
class Regression {
 public:
  static constexpr size_t kDimensions = 60;

  explicit Regression(uint64_t seed) : seed_(seed) {
    for (size_t i = 0; i < kDimensions; ++i) {
      truth_.push_back(2 * plans::random_normal(seed, 1, i) / std::sqrt(double{kDimensions}));
    }
  }

  static double width(size_t dimension) { return dimension < 2 ? 6 : 1; }

  /// Of the mean squared error of samples [begin, begin + count).
  Vector gradient(const Vector& w, uint64_t begin, uint64_t count) const {
    std::vector<double> sum(kDimensions);
    for (uint64_t sample = begin; sample < begin + count; ++sample) {
      std::vector<double> x(kDimensions);
      double error = -0.3 * plans::random_normal(seed_, 2, sample);
      for (size_t i = 0; i < kDimensions; ++i) {
        x[i] = width(i) * plans::random_normal(seed_, 3, sample * kDimensions + i);
        error += x[i] * (w[i] - truth_[i]);
      }
      for (size_t i = 0; i < kDimensions; ++i) {
        sum[i] += 2 * error * x[i] / static_cast<double>(count);
      }
    }
    return Vector(sum.begin(), sum.end());
  }

  /// Expected squared error without the noise, which is 0 at the best.
  double excess_loss(const Vector& w) const {
    double loss = 0;
    for (size_t i = 0; i < kDimensions; ++i) loss += std::pow(width(i) * (w[i] - truth_[i]), 2);
    return loss;
  }

 private:
  uint64_t seed_;
  std::vector<double> truth_;
};

/// 40 steps with a learning rate that suits one rank, each rank with 16 samples a step of its own.
double loss_after(ReducerKind kind, uint32_t ranks, uint64_t seed) {
  constexpr double kLearningRate = 0.005;
  constexpr uint64_t kSteps = 40, kRows = 16;
  const Regression problem(seed);
  std::vector<Vector> weights(ranks, Vector(Regression::kDimensions));
  reduce_all(weights, [&](Exchange& exchange, Vector& w) {
    ReducerOptions options;
    options.kind = kind;
    Reducer reducer(options);
    for (uint64_t step = 0; step < kSteps; ++step) {
      const uint64_t begin = (step * ranks + exchange.rank()) * kRows;
      Vector gradient = problem.gradient(w, begin, kRows);
      const absl::Status status = reducer.reduce(exchange, gradient);
      if (!status.ok()) return status;
      for (size_t i = 0; i < w.size(); ++i) w[i] -= static_cast<float>(kLearningRate * gradient[i]);
    }
    return absl::OkStatus();
  });
  return problem.excess_loss(weights[0]);
}

TEST(AdasumConvergence, IsFasterThanTheMeanAndStaysWhereTheSumDiverges) {
  for (uint64_t seed : {1, 2, 3, 4, 5}) {
    const double start = Regression(seed).excess_loss(Vector(Regression::kDimensions));
    double fewer_ranks = start;
    for (uint32_t ranks : {4, 9, 16}) {
      const double adasum = loss_after(ReducerKind::kAdasum, ranks, seed);
      const double mean = loss_after(ReducerKind::kMean, ranks, seed);
      const double sum = loss_after(ReducerKind::kSum, ranks, seed);
      const std::string facts = absl::StrCat("seed ", seed, ", ", ranks, " ranks: start ", start,
                                             ", mean ", mean, ", adasum ", adasum, ", sum ", sum);
      SCOPED_TRACE(facts);
      EXPECT_LT(adasum, mean / 2);
      EXPECT_LT(adasum, fewer_ranks) << "more samples do not help";
      EXPECT_TRUE(ranks < 9 || !(sum < 1e3 * start));
      fewer_ranks = adasum;
      std::cout << facts << "\n";
    }
  }
}

}  // namespace
}  // namespace skein::net
