// Compressed sums train as well as the plain one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "net/reduce/reducer.hpp"
#include "plans/base/rng.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"
#include "tests/support/cases.hpp"

namespace skein::net {
namespace {

using plans::ReducerKind;
using Vector = std::vector<float>;

/// A regression y = tanh(x W1) W2 of a fixed network of the same shape, with some noise: an MLP of
/// two tensors, whose loss cannot go to 0.
class Problem {
 public:
  static constexpr size_t kInputs = 24, kHidden = 40;
  static constexpr size_t kFloats = kInputs * kHidden + kHidden;

  explicit Problem(uint64_t seed) : seed_(seed), truth_(weights(seed, 1.0)) {}

  Vector start() const { return weights(seed_ + 1000, 0.5); }

  /// Mean loss of samples [begin, begin + count); adds the gradient of its mean to `gradient`.
  double loss(const Vector& w, uint64_t begin, uint64_t count, Vector* gradient) const {
    double total = 0;
    for (uint64_t sample = begin; sample < begin + count; ++sample) {
      Vector x(kInputs), hidden(kHidden), other(kHidden);
      for (size_t i = 0; i < kInputs; ++i) {
        x[i] = static_cast<float>(plans::random_normal(seed_, 2, sample * kInputs + i));
      }
      const double target = output(truth_, x, other) + 0.3 * plans::random_normal(seed_, 3, sample);
      const double error = output(w, x, hidden) - target;
      total += error * error / static_cast<double>(count);
      if (gradient == nullptr) continue;
      const double slope = 2 * error / static_cast<double>(count);
      for (size_t h = 0; h < kHidden; ++h) {
        (*gradient)[kInputs * kHidden + h] += static_cast<float>(slope * hidden[h]);
        const double inner = slope * w[kInputs * kHidden + h] * (1 - double{hidden[h]} * hidden[h]);
        for (size_t i = 0; i < kInputs; ++i) {
          (*gradient)[h * kInputs + i] += static_cast<float>(inner * x[i]);
        }
      }
    }
    return total;
  }

 private:
  static Vector weights(uint64_t seed, double scale) {
    Vector w(kFloats);
    for (size_t i = 0; i < kFloats; ++i) {
      const double fan_in = i < kInputs * kHidden ? kInputs : kHidden;
      w[i] = static_cast<float>(scale * plans::random_normal(seed, 1, i) / std::sqrt(fan_in));
    }
    return w;
  }
  static double output(const Vector& w, const Vector& x, Vector& hidden) {
    double y = 0;
    for (size_t h = 0; h < kHidden; ++h) {
      double sum = 0;
      for (size_t i = 0; i < kInputs; ++i) sum += double{w[h * kInputs + i]} * x[i];
      hidden[h] = static_cast<float>(std::tanh(sum));
      y += double{hidden[h]} * w[kInputs * kHidden + h];
    }
    return y;
  }

  uint64_t seed_;
  Vector truth_;
};

struct Training {
  ReducerKind kind = ReducerKind::kSum;
  double lr = 0.05;
  uint32_t ranks = 4;
  uint64_t rows = 8;  // Samples of a rank in a step.
  int steps = 100;
  double density = 0.01;
};

/// SGD from the same start on the same samples; the loss on samples that were not trained on.
double loss_after(const Training& training, uint64_t seed) {
  const Problem problem(seed);
  std::vector<Vector> weights(training.ranks, problem.start());
  const auto results = run_ranks(training.ranks, [&](ThreadedExchange& exchange) {
    ReducerOptions options;
    options.kind = training.kind;
    options.density = training.density;
    options.own_share = 1.0 / training.ranks;
    options.tensor_floats = {Problem::kInputs * Problem::kHidden, Problem::kHidden};
    Reducer reducer(options);
    Vector& w = weights[exchange.rank()];
    for (int step = 0; step < training.steps; ++step) {
      const uint64_t batch = training.rows * training.ranks;
      const uint64_t begin = 100000 + static_cast<uint64_t>(step) * batch;
      Vector gradient(w.size());
      problem.loss(w, begin + exchange.rank() * training.rows, training.rows, &gradient);
      for (float& g : gradient) g = static_cast<float>(g * options.own_share);
      const absl::Status status = reducer.reduce(exchange, gradient);
      if (!status.ok()) return status;
      for (size_t i = 0; i < w.size(); ++i) w[i] -= static_cast<float>(training.lr * gradient[i]);
    }
    return absl::OkStatus();
  });
  for (const absl::Status& each : results) {
    EXPECT_TRUE(each.ok()) << each;
  }
  for (const Vector& each : weights) {
    EXPECT_EQ(std::memcmp(each.data(), weights[0].data(), each.size() * sizeof(float)), 0);
  }
  return problem.loss(weights[0], 0, 500, nullptr);
}

TEST(Convergence, TopKAtOnePercentReachesTheDenseLoss) {
  for (uint64_t seed = 1; seed <= tests::cases(3); ++seed) {
    Training training;
    training.lr = 0.02;
    training.rows = 4;
    training.steps = 3000;
    const double dense = loss_after(training, seed);
    training.kind = ReducerKind::kTopK;
    const double sparse = loss_after(training, seed);
    EXPECT_LT(sparse, dense * 1.01) << "seed " << seed;
  }
}

TEST(Convergence, HalvesReachTheLossOfFloats) {
  Training training;
  training.ranks = 3;
  training.steps = 300;
  const double full = loss_after(training, 1);
  for (ReducerKind kind : {ReducerKind::kFp16, ReducerKind::kBf16}) {
    training.kind = kind;
    EXPECT_NEAR(loss_after(training, 1), full, full * 0.01);
  }
}

}  // namespace
}  // namespace skein::net
