#include "net/reduce/top_k_all_to_all.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "net/reduce/sparse_frame.hpp"
#include "tests/net/reduce/random_values.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

using Vector = std::vector<float>;

TEST(TopKAllToAll, IsTheSumAtDensityOne) {
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (size_t floats : {0, 1, 2, 7, 101}) {
      auto values = random_values(ranks, floats);
      std::vector<double> sum(floats);
      for (const Vector& each : values) {
        for (size_t i = 0; i < floats; ++i) sum[i] += each[i];
      }
      reduce_all(values, [](Exchange& exchange, Vector& each) {
        return TopKAllToAll(1.0).reduce(exchange, each);
      });
      for (const Vector& each : values) EXPECT_EQ(each, values[0]);
      for (size_t i = 0; i < floats; ++i) EXPECT_NEAR(values[0][i], sum[i], 1e-5);
    }
  }
}

/// What comes out of many rounds, and what is still left out, is what went in: so after as many
/// rounds of zeros as it takes to send the rest, the outputs add up to the inputs.
TEST(TopKAllToAll, DeliversWhatItLeftOutLater) {
  const size_t floats = 101;
  for (uint32_t ranks : {1, 2, 3, 5, 6}) {
    std::vector<std::unique_ptr<TopKAllToAll>> sums;
    for (uint32_t i = 0; i < ranks; ++i) sums.push_back(std::make_unique<TopKAllToAll>(0.05));
    std::vector<double> in(floats), out(floats);
    for (uint64_t round = 0; round < 30; ++round) {
      auto values = round < 8 ? random_values(ranks, floats, round)
                              : std::vector<Vector>(ranks, Vector(floats));
      for (const Vector& each : values) {
        for (size_t i = 0; i < floats; ++i) in[i] += each[i];
      }
      reduce_all(values, [&](Exchange& exchange, Vector& each) {
        return sums[exchange.rank()]->reduce(exchange, each);
      });
      for (const Vector& each : values) EXPECT_EQ(each, values[0]);
      for (size_t i = 0; i < floats; ++i) out[i] += values[0][i];
    }
    for (size_t i = 0; i < floats; ++i) EXPECT_NEAR(out[i], in[i], 1e-4);
  }
}

TEST(TopKAllToAll, SendsKOfEachOtherShardAndAllOfItsOwn) {
  std::vector<Vector> values(3, Vector(60, 2.0F));  // All ties.
  MailBoxes boxes;
  run_ranks(
      3,
      [&](ThreadedExchange& exchange) {
        return TopKAllToAll(0.1).reduce(exchange, values[exchange.rank()]);
      },
      &boxes);
  const size_t shard_bytes = 20 * sizeof(float);
  EXPECT_EQ(boxes.bytes_sent(0), 2 * (sparse_frame_words(2) * sizeof(uint32_t) + shard_bytes));
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(values[0][i], i % 20 < 2 ? 6.0F : 2.0F) << i;
}

TEST(TopKAllToAll, EveryRankRefusesWhatIsNotFinite) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (uint32_t ranks : {1, 2, 5}) {
      for (uint32_t sick = 0; sick < ranks; ++sick) {
        std::vector<absl::Status> results(ranks);
        run_ranks(ranks, [&](ThreadedExchange& exchange) {
          Vector values(31, 1.0F);
          if (exchange.rank() == sick) values[17] = bad;
          results[exchange.rank()] = TopKAllToAll(0.1).reduce(exchange, values);
          return absl::OkStatus();  // Nobody has to be woken by an abort.
        });
        for (const absl::Status& each : results) EXPECT_TRUE(absl::IsInvalidArgument(each)) << each;
      }
    }
  }
}

TEST(TopKAllToAll, EndsEverywhereWhenAnyMoveFails) {
  for (uint32_t broken = 0; broken < 3; ++broken) {
    for (size_t moves = 0; moves < 4; ++moves) {
      const auto results = run_ranks(3, [&](ThreadedExchange& exchange) {
        if (exchange.rank() == broken) exchange.moves_left = moves;
        Vector values(31, 1.0F);
        return TopKAllToAll(0.1).reduce(exchange, values);
      });
      EXPECT_FALSE(results[broken].ok());
    }
  }
}

}  // namespace
}  // namespace skein::net
