#include "net/reduce/ring.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "net/reduce/pieces.hpp"
#include "tests/net/reduce/random_values.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

TEST(Pieces, TileTheFloatsInOrder) {
  for (size_t floats = 0; floats < 40; ++floats) {
    for (size_t count = 1; count < 12; ++count) {
      size_t begin = 0;
      for (size_t i = 0; i < count; ++i) {
        const FloatRange piece = piece_of(floats, i, count);
        EXPECT_EQ(piece.begin, begin);
        begin = piece.end;
      }
      EXPECT_EQ(begin, floats);
    }
  }
}

TEST(RingSum, GivesEveryRankTheBitsOfTheSum) {
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (size_t floats : {0, 1, 2, 7, 8, 101}) {
      std::vector<std::vector<float>> values = random_values(ranks, floats);
      std::vector<double> sum(floats);
      for (const auto& each : values) {
        for (size_t i = 0; i < floats; ++i) sum[i] += each[i];
      }
      reduce_all(values, ring_sum);
      for (const auto& each : values) EXPECT_EQ(each, values[0]);
      for (size_t i = 0; i < floats; ++i) EXPECT_NEAR(values[0][i], sum[i], 1e-5);
    }
  }
}

TEST(RingSum, EndsEverywhereWhenAnyMoveFails) {
  for (uint32_t broken = 0; broken < 3; ++broken) {
    for (size_t moves = 0; moves < 4; ++moves) {
      const auto results = run_ranks(3, [&](ThreadedExchange& exchange) {
        if (exchange.rank() == broken) exchange.moves_left = moves;
        std::vector<float> values(7, 1.0F);
        return ring_sum(exchange, values);
      });
      EXPECT_FALSE(results[broken].ok());
    }
  }
}

}  // namespace
}  // namespace skein::net
