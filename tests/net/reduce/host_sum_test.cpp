#include "net/reduce/host_sum.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/net/reduce/random_values.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

using Vector = std::vector<float>;
using Hosts = std::vector<uint32_t>;

/// Layouts of `ranks` ranks: each a host, all on one, two in turns, one after the other, uneven.
std::vector<Hosts> layouts(uint32_t ranks) {
  std::vector<Hosts> result(5);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    result[0].push_back(rank);
    result[1].push_back(7);
    result[2].push_back(rank % 2);
    result[3].push_back(rank / 2);
    result[4].push_back(rank == 0 ? 5 : rank / 3);
  }
  return result;
}

TEST(HostSum, GivesEveryRankTheBitsOfTheSumWhereverItIs) {
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (const Hosts& hosts : layouts(ranks)) {
      for (size_t floats : {0, 1, 2, 7, 101}) {
        auto values = random_values(ranks, floats);
        std::vector<double> sum(floats);
        for (const Vector& each : values) {
          for (size_t i = 0; i < floats; ++i) sum[i] += each[i];
        }
        reduce_all(values, [&](Exchange& exchange, Vector& each) {
          return host_sum(exchange, hosts, each);
        });
        for (const Vector& each : values) EXPECT_EQ(each, values[0]);
        for (size_t i = 0; i < floats; ++i) EXPECT_NEAR(values[0][i], sum[i], 1e-5);
      }
    }
  }
}

/// Of two hosts of four each sends all floats once to the other; a ring of all eight sends 1.75
/// times as much over its two links between them.
TEST(HostSum, SendsTheVectorOnceBetweenTwoHosts) {
  const Hosts hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  std::vector<size_t> between(8);
  run_ranks(8, [&](ThreadedExchange& exchange) {
    class Counted final : public Exchange {
     public:
      Counted(Exchange& whole, const Hosts& of, size_t& bytes)
          : whole_(whole), of_(of), bytes_(bytes) {}
      uint32_t rank() const override { return whole_.rank(); }
      uint32_t rank_count() const override { return whole_.rank_count(); }
      absl::Status move(const Outgoing& out, const Incoming& in) override {
        if (of_[out.to] != of_[rank()]) bytes_ += out.bytes.size();
        return whole_.move(out, in);
      }

     private:
      Exchange& whole_;
      const Hosts& of_;
      size_t& bytes_;
    } counted(exchange, hosts, between[exchange.rank()]);
    Vector values(80, 1.0F);
    return host_sum(counted, hosts, values);
  });
  size_t first_host = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) first_host += between[rank];
  EXPECT_EQ(first_host, 80 * sizeof(float));
}

TEST(HostSum, EndsEverywhereWhenAnyMoveFails) {
  const Hosts hosts = {0, 0, 1, 1, 1};
  for (uint32_t broken = 0; broken < 5; ++broken) {
    for (size_t moves = 0; moves < 2; ++moves) {
      const auto results = run_ranks(5, [&](ThreadedExchange& exchange) {
        if (exchange.rank() == broken) exchange.moves_left = moves;
        Vector values(31, 1.0F);
        return host_sum(exchange, hosts, values);
      });
      EXPECT_FALSE(results[broken].ok());
    }
  }
}

}  // namespace
}  // namespace skein::net
