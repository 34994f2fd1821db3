#include "net/reduce/top_k_sum.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "net/reduce/host_shards.hpp"
#include "net/reduce/sparse_frame.hpp"
#include "tests/net/reduce/random_values.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

using Vector = std::vector<float>;
using Hosts = std::vector<uint32_t>;

std::vector<std::unique_ptr<TopKSum>> make_sums(size_t ranks, double density, const Hosts& hosts) {
  std::vector<std::unique_ptr<TopKSum>> sums;
  for (size_t i = 0; i < ranks; ++i) sums.push_back(std::make_unique<TopKSum>(density, hosts));
  return sums;
}

void reduce(std::vector<std::unique_ptr<TopKSum>>& sums, std::vector<Vector>& values) {
  reduce_all(values, [&](Exchange& exchange, Vector& each) {
    return sums[exchange.rank()]->reduce(exchange, each);
  });
}

/// Layouts of `ranks` ranks: each a host, all on one, two in turns, and an uneven one.
std::vector<Hosts> layouts(uint32_t ranks) {
  std::vector<Hosts> result(4);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    result[1].push_back(7);
    result[2].push_back(rank % 2);
    result[3].push_back(rank == 0 ? 5 : rank / 3);
  }
  return result;
}

TEST(HostShards, EveryHostHasOneOwnerOfEachShard) {
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (const Hosts& hosts : layouts(ranks)) {
      if (hosts.empty()) continue;
      const uint32_t shards = host_shards(hosts, 0).shard_count;
      std::map<uint32_t, std::map<uint32_t, int>> owners;  // By host and shard.
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const HostShards mine = host_shards(hosts, rank);
        EXPECT_EQ(mine.shard_count, shards);
        EXPECT_EQ(mine.local[mine.local_position], rank);
        if (!mine.owns()) continue;
        EXPECT_EQ(mine.owners[mine.owner_position], rank);
        EXPECT_EQ(mine.owners.size(), mine.host_count);
        ++owners[hosts[rank]][mine.local_position];
      }
      for (const auto& [host, of_host] : owners) EXPECT_EQ(of_host.size(), shards);
    }
  }
}

TEST(TopKSum, IsTheSumAtDensityOne) {
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (const Hosts& hosts : layouts(ranks)) {
      for (size_t floats : {0, 1, 2, 7, 101}) {
        auto values = random_values(ranks, floats);
        std::vector<double> sum(floats);
        for (const Vector& each : values) {
          for (size_t i = 0; i < floats; ++i) sum[i] += each[i];
        }
        auto sums = make_sums(ranks, 1.0, hosts);
        reduce(sums, values);
        for (const Vector& each : values) EXPECT_EQ(each, values[0]);
        for (size_t i = 0; i < floats; ++i) EXPECT_NEAR(values[0][i], sum[i], 1e-5);
      }
    }
  }
}

TEST(TopKSum, ASingleHostLeavesNothingOut) {
  auto values = random_values(4, 100);
  const auto inputs = values;
  auto sums = make_sums(4, 0.01, Hosts(4, 0));
  reduce(sums, values);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(values[0][i], inputs[0][i] + inputs[1][i] + inputs[2][i] + inputs[3][i], 1e-5);
  }
}

/// What comes out of many rounds, and what is still left out, is what went in: so after as many
/// rounds of zeros as it takes to send the rest, the outputs add up to the inputs.
TEST(TopKSum, DeliversWhatItLeftOutLater) {
  const size_t floats = 101;
  for (uint32_t ranks : {2, 3, 5, 6}) {
    for (const Hosts& hosts : layouts(ranks)) {
      auto sums = make_sums(ranks, 0.05, hosts);
      std::vector<double> in(floats), out(floats);
      for (uint64_t round = 0; round < 30; ++round) {
        auto values = round < 8 ? random_values(ranks, floats, round)
                                : std::vector<Vector>(ranks, Vector(floats));
        for (const Vector& each : values) {
          for (size_t i = 0; i < floats; ++i) in[i] += each[i];
        }
        reduce(sums, values);
        for (const Vector& each : values) EXPECT_EQ(each, values[0]);
        for (size_t i = 0; i < floats; ++i) out[i] += values[0][i];
      }
      for (size_t i = 0; i < floats; ++i) EXPECT_NEAR(out[i], in[i], 1e-4);
    }
  }
}

TEST(TopKSum, EveryHostSendsExactlyKOfEachShard) {
  std::vector<Vector> values(3, Vector(50, 2.0F));  // All ties.
  MailBoxes boxes;
  run_ranks(
      3,
      [&](ThreadedExchange& exchange) {
        return TopKSum(0.1, {}).reduce(exchange, values[exchange.rank()]);
      },
      &boxes);
  EXPECT_EQ(boxes.bytes_sent(0), 2 * sparse_frame_words(5) * sizeof(uint32_t));
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(values[0][i], i < 5 ? 6.0F : 0.0F);
}

TEST(TopKSum, PartsOfAVectorKeepWhatTheyLeftOutApart) {
  std::vector<Vector> outputs;
  run_ranks(2, [&](ThreadedExchange& exchange) {
    TopKSum sum(0.1, {});
    Vector a = {3, 2, 0}, b = {0, 0, 5, 4};
    for (int round = 0; round < 2; ++round) {
      EXPECT_TRUE(sum.reduce(exchange, a, 0).ok());
      EXPECT_TRUE(sum.reduce(exchange, b, 3).ok());
      EXPECT_EQ(a, (round == 0 ? Vector{6, 0, 0} : Vector{0, 4, 0}));
      EXPECT_EQ(b, (round == 0 ? Vector{0, 0, 10, 0} : Vector{0, 0, 0, 8}));
      a.assign(3, 0);
      b.assign(4, 0);
    }
    return absl::OkStatus();
  });
}

TEST(TopKSum, EveryRankRefusesWhatIsNotFinite) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (uint32_t ranks : {1, 2, 5}) {
      for (const Hosts& hosts : layouts(ranks)) {
        for (uint32_t sick = 0; sick < ranks; ++sick) {
          std::vector<absl::Status> results(ranks);
          run_ranks(ranks, [&](ThreadedExchange& exchange) {
            Vector values(31, 1.0F);
            if (exchange.rank() == sick) values[17] = bad;
            results[exchange.rank()] = TopKSum(0.1, hosts).reduce(exchange, values);
            return absl::OkStatus();  // Nobody has to be woken by an abort.
          });
          for (const absl::Status& each : results) EXPECT_TRUE(absl::IsInvalidArgument(each));
        }
      }
    }
  }
}

TEST(TopKSum, EndsEverywhereWhenAnyMoveFails) {
  const Hosts hosts = {0, 0, 1, 1, 1};
  for (uint32_t broken = 0; broken < 5; ++broken) {
    for (size_t moves = 0; moves < 2; ++moves) {
      const auto results = run_ranks(5, [&](ThreadedExchange& exchange) {
        if (exchange.rank() == broken) exchange.moves_left = moves;
        Vector values(31, 1.0F);
        return TopKSum(0.1, hosts).reduce(exchange, values);
      });
      EXPECT_FALSE(results[broken].ok());
    }
  }
}

std::vector<uint32_t> frame(std::vector<uint32_t> head, std::vector<uint32_t> indices,
                            std::vector<float> values) {
  for (uint32_t index : indices) head.push_back(index);
  for (float value : values) head.push_back(std::bit_cast<uint32_t>(value));
  return head;
}

TEST(SparseFrame, IsCheckedBeforeAnythingIsAdded) {
  const std::vector<std::vector<uint32_t>> bad = {
      {},
      {10},
      {10, 0, 0},
      frame({9, 2}, {1, 5}, {1, 2}),
      frame({10, 1}, {1, 5}, {1, 2}),
      frame({10, 3}, {1, 5}, {1, 2}),
      frame({10, UINT32_MAX}, {0, 0}, {0, 0}),
      frame({10, 2}, {5, 5}, {1, 2}),
      frame({10, 2}, {5, 1}, {1, 2}),
      frame({10, 2}, {5, 10}, {1, 2}),
      frame({10, 2}, {1, 5}, {1, std::nanf("")}),
      frame({10, 2}, {1, 5}, {std::numeric_limits<float>::infinity(), 1}),
  };
  for (const auto& each : bad) {
    Vector sum(10, 1.0F);
    EXPECT_TRUE(absl::IsInvalidArgument(add_sparse_frame(each, sum)));
    EXPECT_EQ(sum, Vector(10, 1.0F));
  }
  Vector sum(10, 1.0F);
  EXPECT_TRUE(add_sparse_frame(frame({10, 2}, {0, 9}, {1, 2}), sum).ok());
  EXPECT_EQ(sum, (Vector{2, 1, 1, 1, 1, 1, 1, 1, 1, 3}));
}

}  // namespace
}  // namespace skein::net
