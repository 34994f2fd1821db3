#include "net/reduce/adasum.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/net/reduce/adasum_reference.hpp"
#include "tests/net/reduce/random_values.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

using Vector = std::vector<float>;

Vector pair(const Vector& a, const Vector& b) {
  std::vector<Vector> values = {a, b};
  const std::vector<size_t> tensors = {a.size()};
  reduce_all(values,
             [&](Exchange& exchange, Vector& each) { return adasum(exchange, each, tensors); });
  EXPECT_EQ(std::memcmp(values[0].data(), values[1].data(), a.size() * sizeof(float)), 0);
  return values[0];
}

TEST(Adasum, AddsOrthogonalVectors) { EXPECT_EQ(pair({3, 0, 0}, {0, 4, 5}), (Vector{3, 4, 5})); }
TEST(Adasum, TakesTheMeanOfEqualVectors) {
  EXPECT_EQ(pair({3, -2, 7}, {3, -2, 7}), (Vector{3, -2, 7}));
}
TEST(Adasum, TakesTheMeanOfParallelVectors) {
  EXPECT_EQ(pair({2, 4, 8}, {4, 8, 16}), (Vector{3, 6, 12}));
}
TEST(Adasum, CancelsOppositeOnes) { EXPECT_EQ(pair({2, 4}, {-2, -4}), (Vector{0, 0})); }
TEST(Adasum, LeavesTheOtherVectorWhereOneIsZero) {
  EXPECT_EQ(pair({0, 0, 0}, {1, 2, 3}), (Vector{1, 2, 3}));
  EXPECT_EQ(pair({1, 2, 3}, {0, 0, 0}), (Vector{1, 2, 3}));
  EXPECT_EQ(pair({0, 0}, {0, 0}), (Vector{0, 0}));
}
TEST(Adasum, HoldsForTheSmallestAndTheLargestFloats) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(pair({tiny}, {tiny}), (Vector{tiny}));
  const float huge = std::numeric_limits<float>::max();
  EXPECT_EQ(pair({huge, huge}, {huge, huge}), (Vector{huge, huge}));
}
TEST(Adasum, LetsNanThrough) { EXPECT_TRUE(std::isnan(pair({std::nanf(""), 1}, {1, 1})[1])); }

TEST(Adasum, EqualsTheSequentialTreeTensorByTensor) {
  const std::vector<std::vector<size_t>> shapes = {
      {}, {0}, {1}, {2}, {5}, {1, 1, 1}, {3, 0, 4, 1}, {17, 64, 1, 300, 5}};
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (const auto& shape : shapes) {
      size_t floats = 0;
      for (size_t each : shape) floats += each;
      const std::vector<Vector> inputs = random_values(ranks, floats);
      std::vector<Vector> values = inputs;
      reduce_all(values,
                 [&](Exchange& exchange, Vector& each) { return adasum(exchange, each, shape); });
      size_t begin = 0;
      for (size_t each : shape) {
        std::vector<Vector> tensor;
        for (const Vector& input : inputs) {
          tensor.emplace_back(input.begin() + begin, input.begin() + begin + each);
        }
        const std::vector<double> expected = adasum_reference(tensor);
        double norm = 1e-30;
        for (double x : expected) norm = std::max(norm, std::fabs(x));
        for (size_t i = 0; i < each; ++i) {
          EXPECT_NEAR(values[0][begin + i], expected[i], 1e-6 * std::max(1.0, norm))
              << ranks << " ranks, " << floats << " floats";
        }
        begin += each;
      }
      for (const Vector& each : values) EXPECT_EQ(each, values[0]) << ranks << " ranks";
    }
  }
}

TEST(Adasum, SendsWhatItSays) {
  const size_t floats = 1024;
  for (uint32_t ranks : {2, 4, 8}) {
    MailBoxes boxes;
    const std::vector<size_t> tensors = {floats};
    run_ranks(
        ranks,
        [&](ThreadedExchange& exchange) {
          Vector values(floats, 1.0F);
          return adasum(exchange, values, tensors);
        },
        &boxes);
    const size_t levels = std::bit_width(ranks) - 1;
    const size_t dots = levels * (levels + 1) / 2 * sizeof(AdasumDots);
    EXPECT_EQ(boxes.bytes_sent(0), 2 * (ranks - 1) * floats / ranks * sizeof(float) + dots);
  }
}

TEST(Adasum, RefusesTensorsThatDoNotTile) {
  const auto results = run_ranks(2, [](ThreadedExchange& exchange) {
    Vector values(4);
    const std::vector<size_t> tensors = {3};
    return adasum(exchange, values, tensors);
  });
  for (const absl::Status& each : results) EXPECT_TRUE(absl::IsInvalidArgument(each));
}

TEST(Adasum, EndsEverywhereWhenAnyMoveFails) {
  for (uint32_t broken = 0; broken < 5; ++broken) {
    for (size_t moves = 0; moves < 2; ++moves) {
      const auto results = run_ranks(5, [&](ThreadedExchange& exchange) {
        if (exchange.rank() == broken) exchange.moves_left = moves;
        Vector values(9, 1.0F);
        const std::vector<size_t> tensors = {4, 5};
        return adasum(exchange, values, tensors);
      });
      EXPECT_FALSE(results[broken].ok());
    }
  }
}

}  // namespace
}  // namespace skein::net
