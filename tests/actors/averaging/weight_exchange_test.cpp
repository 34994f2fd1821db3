#include "actors/averaging/weight_exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"
#include "tests/actors/averaging/flying_plane.hpp"
#include "tests/actors/averaging/weighted_group.hpp"
#include "tests/net/reduce/adasum_reference.hpp"

namespace skein::actors {
namespace {

using net::schema::TensorKind;
using plans::GroupMember;
using plans::ReplicaId;

constexpr uint64_t kGeneration = 3;
constexpr uint32_t kReplicasMax = 7;

/// The replicas of a stage with the tensors between them.
struct Stage {
  Stage(uint32_t replicas, size_t floats_max, const std::vector<size_t>& tensors = {})
      : results(replicas) {
    std::map<ReplicaId, std::string> addresses;
    for (uint32_t i = 0; i < replicas; ++i) {
      addresses[{kFirstReplica + i}] = absl::StrCat("replica:", i);
    }
    for (uint32_t i = 0; i < replicas; ++i) {
      planes.push_back(std::make_shared<FlyingPlane>(absl::StrCat("replica:", i), flying));
      WeightExchange::Options options;
      options.streams.plane = planes[i];
      options.streams.generation = kGeneration;
      options.streams.self = {kFirstReplica + i};
      options.floats_max = floats_max;
      options.tensors = tensors;
      options.streams.addresses = addresses;
      options.streams.on_chunk = [this, i](const net::TensorKey& key, net::TensorHandle chunk) {
        take(i, exchanges[i]->on_chunk(key, std::move(chunk)));
      };
      exchanges.push_back(std::make_unique<WeightExchange>(std::move(options)));
    }
  }

  void begin(uint32_t i, uint64_t number, const std::vector<GroupMember>& members,
             std::vector<float> values, WeightExchange::How how = WeightExchange::How::kMean) {
    take(i, exchanges[i]->begin(number, members, std::move(values), how));
  }
  void take(uint32_t i, std::optional<WeightExchange::Done> done) {
    if (done) results[i].push_back(*std::move(done));
  }
  /// Something that is on its way arrives, twice if so asked.
  void deliver_one(plans::Rng& rng, bool twice = false) {
    actors::deliver_one(flying, planes, kFirstReplica, rng, twice);
  }
  void deliver_all(plans::Rng& rng) {
    while (!flying.empty()) ASSERT_NO_FATAL_FAILURE(deliver_one(rng));
  }

  std::vector<Flying> flying;
  std::vector<std::shared_ptr<FlyingPlane>> planes;
  std::vector<std::unique_ptr<WeightExchange>> exchanges;
  Results results;
};

std::vector<uint32_t> first_indices(uint32_t count) {
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < count; ++i) indices.push_back(i);
  return indices;
}

TEST(WeightExchange, AllMembersEndWithTheWeightedMean) {
  plans::Rng rng(1);
  for (uint32_t k = 2; k <= kReplicasMax; ++k) {
    for (size_t floats : {0u, 1u, 1023u, 1024u, 1025u, 6145u, 20011u}) {
      Stage stage(k, floats + 17 * k);
      const std::vector<uint32_t> indices = first_indices(k);
      for (uint32_t i : indices) {
        stage.begin(i, 5, members_of(indices), values_of(i, 5, floats));
      }
      ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
      for (uint32_t i : indices) ASSERT_EQ(stage.results[i].size(), 1u);
      ASSERT_NO_FATAL_FAILURE(expect_mean(stage.results, 5, indices, floats)) << k << " members";
    }
  }
}

/// Groups of some of the replicas, one after the other; beginnings and arrivals interleave.
TEST(WeightExchange, PartsMayComeBeforeBeginAndChunksTwice) {
  constexpr size_t kFloats = 9001;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    plans::Rng rng(seed);
    Stage stage(kReplicasMax, kFloats);
    for (uint64_t number = 1; number <= 4; ++number) {
      std::vector<uint32_t> indices;
      for (uint32_t i = 0; i < kReplicasMax; ++i) {
        if (rng.below(2) == 0 || i < 2) indices.push_back(i);
      }
      std::vector<uint32_t> waiting = indices;
      while (!waiting.empty() || !stage.flying.empty()) {
        if (!waiting.empty() && (stage.flying.empty() || rng.below(20) == 0)) {
          std::swap(waiting[rng.below(waiting.size())], waiting.back());
          const uint32_t i = waiting.back();
          waiting.pop_back();
          const auto values = values_of(i, number, kFloats);
          stage.begin(i, number, members_of(indices), values);
          stage.begin(i, number, members_of(indices), values);
        } else {
          ASSERT_NO_FATAL_FAILURE(stage.deliver_one(rng, rng.below(4) == 0));
        }
      }
      ASSERT_NO_FATAL_FAILURE(expect_mean(stage.results, number, indices, kFloats))
          << "seed " << seed;
    }
    for (const auto& plane : stage.planes) EXPECT_EQ(plane->held(TensorKind::PART), 0u);
  }
}

TEST(WeightExchange, IsDoneAtBeginIfAllIsOursAndEarly) {
  plans::Rng rng(2);
  Stage stage(2, 100);  // One chunk, which the first member owns.
  stage.begin(1, 1, members_of({0, 1}), values_of(1, 1, 100));
  stage.deliver_all(rng);
  EXPECT_TRUE(stage.results[0].empty());
  stage.begin(0, 1, members_of({0, 1}), values_of(0, 1, 100));
  EXPECT_EQ(stage.results[0].size(), 1u);
  EXPECT_TRUE(stage.results[1].empty());
  stage.deliver_all(rng);
  expect_mean(stage.results, 1, {0, 1}, 100);
}

TEST(WeightExchange, EachMemberSendsTwiceWhatOthersAverage) {
  constexpr size_t kFloats = 64 * 1024;  // 64 chunks.
  plans::Rng rng(3);
  for (uint32_t k : {2u, 4u}) {
    Stage stage(k, kFloats);
    for (uint32_t i = 0; i < k; ++i) {
      stage.begin(i, 1, members_of(first_indices(k)), values_of(i, 1, kFloats));
    }
    stage.deliver_all(rng);
    for (const auto& plane : stage.planes) {
      EXPECT_EQ(plane->floats_sent, 2 * (k - 1) * kFloats / k);
    }
  }
}

/// Aborted after every number of arrivals; what is late then meets the next group.
TEST(WeightExchange, TheNextGroupIsNotDisturbedByAAbortedOne) {
  constexpr size_t kFloats = 5000;
  for (int arrivals = 0; arrivals < 40; ++arrivals) {
    plans::Rng rng(100 + static_cast<uint64_t>(arrivals));
    Stage stage(3, kFloats);
    for (uint32_t i : {0u, 1u, 2u}) {
      stage.begin(i, 7, members_of({0, 1, 2}), values_of(i, 7, kFloats));
    }
    for (int n = 0; n < arrivals && !stage.flying.empty(); ++n) stage.deliver_one(rng);
    for (auto& results : stage.results) results.clear();
    for (uint32_t i : {0u, 2u}) {  // 1 has died; what it sent is on its way.
      stage.exchanges[i]->abort(7);
      stage.exchanges[i]->abort(7);
      EXPECT_EQ(stage.planes[i]->held(TensorKind::PART), 0u);
      stage.begin(i, 7, members_of({0, 1, 2}), values_of(i, 7, kFloats));
      stage.begin(i, 8, members_of({0, 2}), values_of(i, 8, kFloats));
      stage.exchanges[i]->abort(7);
    }
    ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
    ASSERT_EQ(stage.results[0].size(), 1u);
    ASSERT_NO_FATAL_FAILURE(expect_mean(stage.results, 8, {0, 2}, kFloats));
  }
}

TEST(WeightExchange, AGroupThatIsAbortedBeforeItBeginsLeavesNothing) {
  constexpr size_t kFloats = 5000;
  plans::Rng rng(4);
  Stage stage(2, kFloats);
  stage.begin(1, 3, members_of({0, 1}), values_of(1, 3, kFloats));
  stage.deliver_all(rng);
  EXPECT_GT(stage.planes[0]->held(TensorKind::PART), 0u);
  stage.exchanges[0]->abort(3);
  EXPECT_EQ(stage.planes[0]->held(TensorKind::PART), 0u);
  stage.begin(0, 3, members_of({0, 1}), values_of(0, 3, kFloats));
  EXPECT_TRUE(stage.flying.empty());
}

TEST(WeightExchange, AHigherNumberEndsTheGroupsBelow) {
  constexpr size_t kFloats = 5000;
  plans::Rng rng(5);
  Stage stage(2, kFloats);
  stage.begin(0, 1, members_of({0, 1}), values_of(0, 1, kFloats));
  stage.begin(1, 2, members_of({0, 1}), values_of(1, 2, kFloats));
  stage.begin(1, 1, members_of({0, 1}), values_of(1, 1, kFloats));  // Late.
  stage.begin(0, 2, members_of({0, 1}), values_of(0, 2, kFloats));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  ASSERT_EQ(stage.results[0].size(), 1u);
  expect_mean(stage.results, 2, {0, 1}, kFloats);
}

/// Adasum of floats [first, first + count) of the contributions of all members.
std::vector<double> adasum_of(const std::vector<uint32_t>& indices, uint64_t number, size_t floats,
                              size_t first, size_t count) {
  std::vector<std::vector<float>> parts;
  for (uint32_t i : indices) {
    const std::vector<float> values = values_of(i, number, floats);
    const auto begin = values.begin() + static_cast<ptrdiff_t>(first);
    parts.emplace_back(begin, begin + static_cast<ptrdiff_t>(count));
  }
  return net::adasum_reference(parts);
}

/// Groups of some of the replicas, so that some own no chunk, and chunks that come twice and in any
/// order.
TEST(WeightExchange, TensorsAreReducedByAdasumAndTheRestIsAMean) {
  const std::vector<size_t> tensors = {700, 1, 1'500, 300};
  constexpr size_t kRest = 2'501;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    plans::Rng rng(seed);
    size_t floats = kRest;
    for (size_t each : tensors) floats += each;
    Stage stage(kReplicasMax, floats + 100, tensors);
    for (uint64_t number = 1; number <= 3; ++number) {
      std::vector<uint32_t> indices;
      for (uint32_t i = 0; i < kReplicasMax; ++i) {
        if (rng.below(2) == 0 || i < 2) indices.push_back(i);
      }
      std::vector<uint32_t> waiting = indices;
      while (!waiting.empty() || !stage.flying.empty()) {
        if (!waiting.empty() && (stage.flying.empty() || rng.below(4) == 0)) {
          const uint32_t i = waiting.back();
          waiting.pop_back();
          stage.begin(i, number, members_of(indices), values_of(i, number, floats),
                      WeightExchange::How::kAdasum);
        } else {
          ASSERT_NO_FATAL_FAILURE(stage.deliver_one(rng, rng.below(4) == 0));
        }
      }
      const std::vector<float>& first = stage.results[indices[0]].back().values;
      for (uint32_t i : indices) {
        ASSERT_FALSE(stage.results[i].empty()) << i;
        ASSERT_EQ(stage.results[i].back().number, number);
        ASSERT_EQ(stage.results[i].back().values, first) << "the same bits";
      }
      size_t from = 0;
      for (size_t each : tensors) {
        const std::vector<double> expected = adasum_of(indices, number, floats, from, each);
        for (size_t f = 0; f < each; ++f) ASSERT_NEAR(first[from + f], expected[f], 1e-5) << f;
        from += each;
      }
      const auto members = members_of(indices);
      std::vector<double> mean(floats);
      for (size_t m = 0; m < members.size(); ++m) {
        const std::vector<float> values = values_of(indices[m], number, floats);
        for (size_t f = from; f < floats; ++f) mean[f] += members[m].weight * double{values[f]};
      }
      for (size_t f = from; f < floats; ++f) ASSERT_NEAR(first[f], mean[f], 1e-6) << f;
    }
    for (const auto& plane : stage.planes) EXPECT_EQ(plane->held(TensorKind::PART), 0u);
  }
}

TEST(WeightExchange, AnAbortedAdasumDoesNotDisturbTheNextGroup) {
  constexpr size_t kFloats = 5000;
  for (int arrivals = 0; arrivals < 40; ++arrivals) {
    plans::Rng rng(200 + static_cast<uint64_t>(arrivals));
    Stage stage(3, kFloats, {kFloats});
    for (uint32_t i : {0u, 1u, 2u}) {
      stage.begin(i, 7, members_of({0, 1, 2}), values_of(i, 7, kFloats),
                  WeightExchange::How::kAdasum);
    }
    for (int n = 0; n < arrivals && !stage.flying.empty(); ++n) stage.deliver_one(rng);
    for (auto& results : stage.results) results.clear();
    for (uint32_t i : {0u, 2u}) {  // 1 has died; what it sent is on its way.
      stage.exchanges[i]->abort(7);
      stage.begin(i, 8, members_of({0, 2}), values_of(i, 8, kFloats));
    }
    ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
    ASSERT_NO_FATAL_FAILURE(expect_mean(stage.results, 8, {0, 2}, kFloats));
  }
}

/// Chunks that no honest member sends, before and during a group.
TEST(WeightExchange, HostileChunksChangeNothing) {
  constexpr size_t kFloats = 5000;
  plans::Rng rng(6);
  Stage stage(3, kFloats);
  const uint32_t receiver = kFirstReplica;
  const std::vector<float> poison(1024, NAN);
  const std::vector<float> too_short(1023, NAN);
  const auto attack = [&](uint64_t number) {
    for (uint32_t member : {0u, 1u, 2u, 3u, 4095u}) {
      for (uint32_t chunk : {0u, 1u, 2u, 4u, 5u, 0xfffffu}) {
        const uint32_t microbatch = member << 20 | chunk;
        FlyingPlane& plane = *stage.planes[0];
        // What a true member could send is left out: those are believed.
        const bool is_part = chunk < 2 && (member == 1 || member == 2);
        const bool is_average = (chunk == 2 && member == 1) || (chunk == 4 && member == 2);
        for (TensorKind kind : {TensorKind::PART, TensorKind::AVERAGE}) {
          if (kind == TensorKind::PART ? is_part : is_average) {
            plane.arrives({kGeneration, receiver, kind, number, microbatch}, too_short);
            plane.arrives({kGeneration + 1, receiver, kind, number, microbatch}, poison);
            plane.arrives({kGeneration, receiver + 1, kind, number, microbatch}, poison);
          } else {
            plane.arrives({kGeneration, receiver, kind, number, microbatch}, poison);
          }
        }
      }
    }
  };
  attack(2);
  for (uint64_t number : {1, 2}) {
    for (uint32_t i : {0u, 1u, 2u}) {
      stage.begin(i, number, members_of({0, 1, 2}), values_of(i, number, kFloats));
      attack(number);
    }
    ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
    attack(number);
    ASSERT_NO_FATAL_FAILURE(expect_mean(stage.results, number, {0, 1, 2}, kFloats));
  }
  EXPECT_EQ(stage.planes[0]->held(TensorKind::PART), 0u);
}

TEST(WeightExchange, EarlyChunksOfAnotherGroupOrKindDoNotDisturb) {
  constexpr size_t kFloats = 5000;  // 5 chunks; the first of two members owns 3.
  plans::Rng rng(8);
  Stage stage(3, kFloats);
  const std::vector<float> poison(1024, NAN);
  const uint32_t first_of_1 = 1u << 20;
  FlyingPlane& plane = *stage.planes[0];
  plane.arrives({kGeneration, kFirstReplica, TensorKind::PART, 5, first_of_1}, poison);
  plane.arrives({kGeneration, kFirstReplica, TensorKind::AVERAGE, 6, first_of_1}, poison);
  stage.begin(1, 6, members_of({0, 1}), values_of(1, 6, kFloats));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  EXPECT_EQ(plane.held(TensorKind::PART), 4u);
  stage.begin(0, 6, members_of({0, 1}), values_of(0, 6, kFloats));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  expect_mean(stage.results, 6, {0, 1}, kFloats);
}

TEST(WeightExchange, KeepsABoundedNumberOfEarlyPartsAndRatherThoseOfHigherNumbers) {
  constexpr size_t kFloats = 5000;  // 5 chunks; the first of two members owns 3.
  plans::Rng rng(7);
  Stage stage(2, kFloats);
  const std::vector<float> values(1024, 1.0f);
  for (uint64_t number = 1; number <= 20; ++number) {
    for (uint32_t chunk = 0; chunk < 3; ++chunk) {
      const net::TensorKey key{kGeneration, kFirstReplica, TensorKind::PART, number,
                               1u << 20 | chunk};
      ASSERT_TRUE(stage.planes[0]->arrives(key, values));
      EXPECT_LE(stage.planes[0]->held(TensorKind::PART), 3u);
    }
  }
  stage.begin(1, 21, members_of({0, 1}), values_of(1, 21, kFloats));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  stage.begin(0, 21, members_of({0, 1}), values_of(0, 21, kFloats));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  expect_mean(stage.results, 21, {0, 1}, kFloats);
}

}  // namespace
}  // namespace skein::actors
