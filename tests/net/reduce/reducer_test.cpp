#include "net/reduce/reducer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "plans/collectives/exchange_partners.hpp"
#include "tests/net/reduce/random_values.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

using Vector = std::vector<float>;
using plans::ReducerKind;

/// Every rank reduces its values by a reducer with the options that `options_of(rank)` gives.
template <class OptionsOf>
std::vector<Vector> reduced(std::vector<Vector> values, OptionsOf options_of) {
  reduce_all(values, [&](Exchange& exchange, Vector& each) {
    return Reducer(options_of(exchange.rank())).reduce(exchange, each);
  });
  return values;
}

ReducerOptions options_of(ReducerKind kind, double own_share) {
  ReducerOptions options;
  options.kind = kind;
  options.own_share = own_share;
  return options;
}

/// Sees that bytes move between partners only.
class WatchedExchange final : public Exchange {
 public:
  WatchedExchange(Exchange& exchange, ReducerKind kind) : exchange_(exchange) {
    for (uint32_t each : plans::exchange_partners(kind, rank(), rank_count())) {
      partners_.insert(each);
    }
  }
  uint32_t rank() const override { return exchange_.rank(); }
  uint32_t rank_count() const override { return exchange_.rank_count(); }
  absl::Status move(const Outgoing& out, const Incoming& in) override {
    EXPECT_TRUE(out.bytes.empty() || partners_.contains(out.to)) << rank() << " to " << out.to;
    EXPECT_TRUE(in.bytes.empty() || partners_.contains(in.from)) << in.from << " to " << rank();
    return exchange_.move(out, in);
  }

 private:
  Exchange& exchange_;
  std::set<uint32_t> partners_;
};

TEST(Reducer, BytesMoveBetweenPartnersOnly) {
  for (const char* name :
       {"sum", "mean", "adasum", "topk", "hitopk", "fp16", "bf16", "hisum", "topka2a"}) {
    const ReducerKind kind = *plans::parse_reducer_kind(name);
    for (uint32_t ranks = 2; ranks <= 9; ++ranks) {
      SCOPED_TRACE(testing::Message() << name << " of " << ranks);
      std::vector<Vector> values = random_values(ranks, 41);
      reduce_all(values, [&](Exchange& exchange, Vector& each) {
        ReducerOptions options = options_of(kind, 1.0 / ranks);
        options.density = 0.5;
        for (uint32_t rank = 0; rank < ranks; ++rank) options.hosts.push_back(rank / 2);
        WatchedExchange watched(exchange, kind);
        return Reducer(options).reduce(watched, each);
      });
    }
  }
}

TEST(Reducer, APartnerHasAPartnerInTurn) {
  for (const char* name :
       {"sum", "mean", "adasum", "topk", "hitopk", "fp16", "bf16", "hisum", "topka2a"}) {
    const ReducerKind kind = *plans::parse_reducer_kind(name);
    for (uint32_t ranks = 2; ranks <= 40; ++ranks) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        for (uint32_t other : plans::exchange_partners(kind, rank, ranks)) {
          const std::vector<uint32_t> back = plans::exchange_partners(kind, other, ranks);
          EXPECT_TRUE(std::find(back.begin(), back.end(), rank) != back.end())
              << name << ": " << rank << " and " << other << " of " << ranks;
        }
      }
    }
  }
  EXPECT_EQ(plans::exchange_partners(ReducerKind::kSum, 0, 4000), (std::vector<uint32_t>{1, 3999}));
  EXPECT_EQ(plans::exchange_partners(ReducerKind::kAdasum, 5, 1000).size(), 10u)
      << "nine levels, and one that is folded in";
}

TEST(Reducer, MeanIsTheSumBitForBitWhenSharesAreEqual) {
  for (uint32_t ranks : {1, 2, 4, 8}) {
    auto of = [&](ReducerKind kind) {
      return reduced(random_values(ranks, 33),
                     [&](uint32_t) { return options_of(kind, 1.0 / ranks); });
    };
    EXPECT_EQ(of(ReducerKind::kMean), of(ReducerKind::kSum));
  }
}

TEST(Reducer, Float64IsSummedInTheMemoryOfFloats) {
  // Of 3 values a piece of floats would cut one; as float32 the small ones would be lost.
  for (uint32_t ranks : {1, 2, 4, 5}) {
    std::vector<std::vector<float>> memory(ranks, std::vector<float>(6));
    for (auto& each : memory) {
      const double values[] = {1.0, 0x1p-40, -0x1p-43};
      std::memcpy(each.data(), values, sizeof(values));
    }
    reduce_all(memory, [&](Exchange& exchange, Vector& each) {
      ReducerOptions options = options_of(ReducerKind::kSum, 1);
      options.is_float64 = true;
      WatchedExchange watched(exchange, ReducerKind::kSum);
      return Reducer(options).reduce(watched, each);
    });
    for (const auto& each : memory) {
      double sums[3];
      std::memcpy(sums, each.data(), sizeof(sums));
      EXPECT_EQ(sums[0], ranks);
      EXPECT_EQ(sums[1], ranks * 0x1p-40);
      EXPECT_EQ(sums[2], ranks * -0x1p-43);
    }
  }
}

TEST(Reducer, MeanAndAdasumUndoTheWeightOfTheMembersSamples) {
  // Both members' own mean gradients are (2, 4); they have 1 and 3 quarters of the samples.
  const std::vector<Vector> weighted = {{0.5F, 1.0F}, {1.5F, 3.0F}};
  for (ReducerKind kind : {ReducerKind::kSum, ReducerKind::kMean, ReducerKind::kAdasum}) {
    const auto values =
        reduced(weighted, [&](uint32_t rank) { return options_of(kind, rank == 0 ? 0.25 : 0.75); });
    EXPECT_EQ(values, (std::vector<Vector>{{2, 4}, {2, 4}})) << plans::name_of(kind);
  }
}

TEST(Reducer, PartsOfAVectorGiveWhatTheWholeGives) {
  const std::vector<size_t> tensors = {3, 1, 0, 7, 5};
  const auto inputs = random_values(3, 16);
  auto reduce = [&](const std::vector<size_t>& cuts) {
    auto values = inputs;
    reduce_all(values, [&](Exchange& exchange, Vector& each) {
      ReducerOptions options = options_of(ReducerKind::kAdasum, 0.5);
      options.tensor_floats = tensors;
      options.whole = each.data();
      Reducer reducer(options);
      absl::Status status;
      for (size_t i = cuts.size() - 1; i-- > 0 && status.ok();) {  // Last layers first.
        status = reducer.reduce(exchange, std::span(each).subspan(cuts[i], cuts[i + 1] - cuts[i]));
      }
      return status;
    });
    return values[0];
  };
  const Vector whole = reduce({0, 16});
  for (const auto& cuts : std::vector<std::vector<size_t>>{{0, 4, 16}, {0, 3, 4, 11, 16}}) {
    const Vector parts = reduce(cuts);
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(parts[i], whole[i], 1e-6);
  }
}

TEST(Reducer, TensorsOfARangeAreThoseWithinIt) {
  const std::vector<size_t> tensors = {3, 1, 0, 7};
  EXPECT_EQ(*tensors_of(tensors, 0, 11), tensors);
  EXPECT_EQ(*tensors_of(tensors, 3, 1), (std::vector<size_t>{1, 0}));
  EXPECT_TRUE(tensors_of(tensors, 11, 0)->empty());
  EXPECT_TRUE(absl::IsInvalidArgument(tensors_of(tensors, 2, 2).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(tensors_of(tensors, 0, 12).status()));
}

TEST(ReducerKind, NamesReadBackAndAWrongOneGetsTheNearest) {
  for (int kind = 0; kind <= static_cast<int>(ReducerKind::kTopKAllToAll); ++kind) {
    const auto each = static_cast<ReducerKind>(kind);
    EXPECT_EQ(*plans::parse_reducer_kind(plans::name_of(each)), each);
  }
  const absl::Status wrong = plans::parse_reducer_kind("adasun").status();
  EXPECT_TRUE(absl::IsInvalidArgument(wrong));
  EXPECT_EQ(wrong.message(),
            "sync.reducer = \"adasun\" (did you mean adasum?): must be one of sum, mean, adasum, "
            "topk, hitopk, fp16, bf16, hisum, topka2a");
}

}  // namespace
}  // namespace skein::net
