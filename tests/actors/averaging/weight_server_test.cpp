#include "actors/averaging/weight_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"
#include "plans/collectives/weight_slices.hpp"
#include "tests/actors/averaging/flying_plane.hpp"

namespace skein::actors {
namespace {

using net::schema::TensorKind;
using plans::GroupMember;
using plans::ReplicaId;

constexpr uint64_t kServedGeneration = 3;
constexpr uint32_t kFirstReplica = 20;
constexpr double kTolerance = 1e-4;

std::vector<float> drawn(plans::Rng& rng, size_t count) {
  std::vector<float> values(count);
  for (float& each : values) each = static_cast<float>(rng.uniform()) - 0.5f;
  return values;
}

/// The replicas of a stage, each with its shard, and the tensors between them.
struct ServedStage {
  ServedStage(uint32_t replicas, size_t floats) : results(replicas) {
    std::map<ReplicaId, std::string> addresses;
    for (uint32_t i = 0; i < replicas; ++i) addresses[id(i)] = absl::StrCat("replica:", i);
    for (uint32_t i = 0; i < replicas; ++i) {
      planes.push_back(std::make_shared<FlyingPlane>(addresses[id(i)], flying));
      WeightServer::Options options{{planes[i], kServedGeneration, id(i), addresses, {}}, floats};
      options.streams.on_chunk = [this, i](const net::TensorKey& key, net::TensorHandle chunk) {
        take(i, servers[i]->on_chunk(key, chunk));
      };
      servers.push_back(std::make_unique<WeightServer>(std::move(options)));
    }
  }
  static ReplicaId id(uint32_t i) { return {kFirstReplica + i}; }

  void take(uint32_t i, std::optional<WeightServer::Done> done) {
    if (!done) return;
    ASSERT_FALSE(results[i].contains(done->number)) << "pulled twice";
    results[i][done->number] = std::move(done->weights);
  }
  void resume(const std::vector<float>& weights) {
    for (uint32_t i = 0; i < servers.size(); ++i) take(i, servers[i]->resume(weights));
  }
  void serve(uint64_t number, const std::vector<GroupMember>& members,
             bool has_group_server = false) {
    for (uint32_t i = 0; i < servers.size(); ++i) {
      take(i, servers[i]->serve(number, members, has_group_server));
    }
  }
  void push(uint32_t i, uint64_t number, const std::vector<float>& update) {
    take(i, servers[i]->push(number, update));
  }
  void deliver_one(plans::Rng& rng, bool twice = false) {
    actors::deliver_one(flying, planes, kFirstReplica, rng, twice);
  }
  void deliver_all(plans::Rng& rng) {
    while (!flying.empty()) ASSERT_NO_FATAL_FAILURE(deliver_one(rng, rng.below(4) == 0));
  }

  std::vector<Flying> flying;
  std::vector<std::shared_ptr<FlyingPlane>> planes;
  std::vector<std::unique_ptr<WeightServer>> servers;
  std::vector<std::map<uint64_t, std::vector<float>>> results;
};

std::vector<GroupMember> everybody(uint32_t replicas) {
  std::vector<GroupMember> members;
  for (uint32_t i = 0; i < replicas; ++i)
    members.push_back({ServedStage::id(i), 0, 1.0 / replicas});
  return members;
}

void expect_near(const std::vector<float>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], kTolerance) << i;
}

TEST(WeightServer, MembersOfOneGroupPullTheSameBits) {
  plans::Rng rng(1);
  for (uint32_t replicas = 1; replicas <= 5; ++replicas) {
    for (size_t floats : {1u, 1023u, 1024u, 1025u, 6145u, 20011u}) {
      ServedStage stage(replicas, floats);
      const std::vector<float> first = drawn(rng, floats);
      stage.resume(first);
      stage.serve(7, everybody(replicas));
      std::vector<double> expected(first.begin(), first.end());
      for (uint32_t i = 0; i < replicas; ++i) {
        const std::vector<float> update = drawn(rng, floats);
        for (size_t f = 0; f < floats; ++f) expected[f] += update[f] / double{1.0 * replicas};
        stage.push(i, 7, update);
      }
      ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
      for (uint32_t i = 0; i < replicas; ++i) {
        ASSERT_NO_FATAL_FAILURE(expect_near(stage.results[i].at(7), expected));
        ASSERT_EQ(stage.results[i].at(7), stage.results[0].at(7));
      }
    }
  }
}

/// What everybody pulls who pushes nothing more, as group `number`.
void expect_server_has(ServedStage& stage, uint64_t number, const std::vector<double>& expected,
                       plans::Rng& rng) {
  const auto replicas = static_cast<uint32_t>(stage.servers.size());
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  stage.serve(number, everybody(replicas));
  for (uint32_t i = 0; i < replicas; ++i) {
    stage.push(i, number, std::vector<float>(expected.size()));
  }
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  for (uint32_t i = 0; i < replicas; ++i) {
    ASSERT_NO_FATAL_FAILURE(expect_near(stage.results[i].at(number), expected));
  }
}

/// Every update is in the server once, whatever overtakes what.
TEST(WeightServer, AddsEachUpdateOnceWhenGroupsOverlap) {
  constexpr uint32_t kReplicas = 4;
  constexpr size_t kFloats = 5000;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    plans::Rng rng(seed);
    ServedStage stage(kReplicas, kFloats);
    const std::vector<float> first = drawn(rng, kFloats);
    std::vector<double> expected(first.begin(), first.end());
    stage.resume(first);
    uint64_t number = 0;
    std::vector<uint64_t> under_way(kReplicas, 0);
    for (int turn = 0; turn < 400; ++turn) {
      const auto i = static_cast<uint32_t>(rng.below(kReplicas));
      const bool is_free = under_way[i] == 0 || stage.results[i].contains(under_way[i]);
      if (is_free && number < 40) {
        under_way[i] = ++number;
        const std::vector<float> update = drawn(rng, kFloats);
        for (size_t f = 0; f < kFloats; ++f) expected[f] += 0.25 * update[f];
        stage.serve(number, {{ServedStage::id(i), 0, 0.25}});
        stage.push(i, number, update);
      } else if (!stage.flying.empty()) {
        ASSERT_NO_FATAL_FAILURE(stage.deliver_one(rng, rng.below(4) == 0));
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_server_has(stage, number + 1, expected, rng));
  }
}

TEST(WeightServer, AGroupsServerPushesForItsMembers) {
  plans::Rng rng(5);
  for (const std::vector<uint32_t>& group :
       {std::vector<uint32_t>{0, 1}, {1, 3}, {0, 2, 4}, {0, 1, 2, 3, 4}}) {
    for (size_t floats : {1u, 1025u, 6145u, 20011u}) {
      ServedStage stage(5, floats);
      const std::vector<float> first = drawn(rng, floats);
      stage.resume(first);
      std::vector<GroupMember> members;
      for (size_t i = 0; i < group.size(); ++i) {
        members.push_back({ServedStage::id(group[i]), 0, 0.1 + 0.05 * static_cast<double>(i)});
      }
      stage.serve(7, members, true);
      std::vector<double> expected(first.begin(), first.end());
      for (size_t i = 0; i < group.size(); ++i) {
        const std::vector<float> update = drawn(rng, floats);
        for (size_t f = 0; f < floats; ++f) expected[f] += members[i].weight * update[f];
        stage.push(group[i], 7, update);
      }
      ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
      const uint64_t chunks = plans::weight_chunk_count(floats, plans::weight_chunk_floats(floats));
      uint64_t pushed = 0, pulled = 0;
      for (const auto& plane : stage.planes) {
        pushed += plane->tensors_sent[TensorKind::PUSH];
        pulled += plane->tensors_sent[TensorKind::PULL];
      }
      EXPECT_LE(pushed, chunks) << "each chunk once, however many members";
      EXPECT_LE(pulled, chunks);
      for (uint32_t i : group) {
        ASSERT_NO_FATAL_FAILURE(expect_near(stage.results[i].at(7), expected));
        ASSERT_EQ(stage.results[i].at(7), stage.results[group[0]].at(7));
      }
    }
  }
}

/// Groups by themselves, most of them with a server, whatever overtakes what.
TEST(WeightServer, GroupsWithServersOverlap) {
  constexpr uint32_t kReplicas = 5;
  constexpr size_t kFloats = 5000;
  const std::vector<std::vector<uint32_t>> groups = {{0, 3}, {1, 2, 4}};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    plans::Rng rng(seed);
    ServedStage stage(kReplicas, kFloats);
    const std::vector<float> first = drawn(rng, kFloats);
    std::vector<double> expected(first.begin(), first.end());
    stage.resume(first);
    uint64_t number = 0;
    std::vector<uint64_t> under_way(groups.size(), 0);
    for (int turn = 0; turn < 600; ++turn) {
      const size_t g = rng.below(groups.size());
      const bool is_free =
          under_way[g] == 0 || std::all_of(groups[g].begin(), groups[g].end(), [&](uint32_t i) {
            return stage.results[i].contains(under_way[g]);
          });
      if (is_free && number < 30) {
        under_way[g] = ++number;
        std::vector<GroupMember> members;
        for (uint32_t i : groups[g]) members.push_back({ServedStage::id(i), 0, 0.2});
        // The word reaches some of them late: the others' parts come before it.
        std::vector<uint32_t> order(kReplicas);
        std::iota(order.begin(), order.end(), 0);
        for (size_t i = kReplicas; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
        for (uint32_t i : order) {
          stage.take(i, stage.servers[i]->serve(number, members, number % 4 > 0));
          if (!std::count(groups[g].begin(), groups[g].end(), i)) continue;
          const std::vector<float> update = drawn(rng, kFloats);
          for (size_t f = 0; f < kFloats; ++f) expected[f] += 0.2 * update[f];
          stage.push(i, number, update);
          if (rng.below(2) == 0 && !stage.flying.empty()) {
            ASSERT_NO_FATAL_FAILURE(stage.deliver_one(rng));
          }
        }
      } else if (!stage.flying.empty()) {
        ASSERT_NO_FATAL_FAILURE(stage.deliver_one(rng, rng.below(4) == 0));
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_server_has(stage, number + 1, expected, rng));
  }
}

/// Nobody may say what another member pushes, least of all ourselves.
TEST(WeightServer, TakesNoPartOfItsOwnFromOthers) {
  plans::Rng rng(7);
  for (const bool is_early : {true, false}) {
    ServedStage stage(2, 5000);
    const std::vector<float> first = drawn(rng, 5000);
    stage.resume(first);
    const uint32_t floats = stage.planes[0]->streams.at(TensorKind::GROUP_PUSH).row_floats;
    const auto forge = [&] {
      for (uint32_t chunk = 0; chunk < 3; ++chunk) {  // With our own place as the sender's.
        for (TensorKind kind :
             {TensorKind::PUSH, TensorKind::PULL, TensorKind::GROUP_PUSH, TensorKind::GROUP_PULL}) {
          stage.planes[0]->arrives({kServedGeneration, ServedStage::id(0).value, kind, 1, chunk},
                                   std::vector<float>(floats, 9));
        }
      }
    };
    if (is_early) forge();
    stage.serve(1, everybody(2), true);
    if (!is_early) forge();
    std::vector<double> expected(first.begin(), first.end());
    for (uint32_t i = 0; i < 2; ++i) {
      const std::vector<float> update = drawn(rng, 5000);
      for (size_t f = 0; f < 5000; ++f) expected[f] += 0.5 * update[f];
      stage.push(i, 1, update);
    }
    ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
    for (uint32_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(stage.results[i].contains(1)) << "it waits for ever";
      ASSERT_NO_FATAL_FAILURE(expect_near(stage.results[i].at(1), expected));
    }
  }
}

TEST(WeightServer, NothingIsHeardOfAnAbortedGroupWithAServer) {
  plans::Rng rng(6);
  ServedStage stage(3, 9000);
  stage.resume(drawn(rng, 9000));
  stage.serve(1, everybody(3), true);
  stage.servers[0]->abort(1);
  for (uint32_t i = 1; i < 3; ++i) stage.push(i, 1, drawn(rng, 9000));
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(stage.deliver_one(rng));
  for (uint32_t i = 1; i < 3; ++i) stage.servers[i]->abort(1);
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  stage.serve(1, everybody(3), true);  // Late.
  stage.serve(2, everybody(3), true);
  for (uint32_t i = 0; i < 3; ++i) stage.push(i, 2, drawn(rng, 9000));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(stage.results[i].contains(1));
    EXPECT_TRUE(stage.results[i].contains(2));
  }
}

TEST(WeightServer, HoldsWhatComesBeforeAShardIsReady) {
  plans::Rng rng(2);
  ServedStage stage(3, 9000);
  const std::vector<float> first = drawn(rng, 9000);
  stage.take(0, stage.servers[0]->resume(first));
  stage.take(2, stage.servers[2]->resume(first));
  const std::vector<GroupMember> alone = {{ServedStage::id(0), 0, 1.0}};
  // The second shard hears of the group last, and has no weights yet.
  stage.take(0, stage.servers[0]->serve(1, alone));
  stage.take(2, stage.servers[2]->serve(1, alone));
  stage.push(0, 1, std::vector<float>(9000, 1.0f));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  EXPECT_TRUE(stage.results[0].empty());
  stage.take(1, stage.servers[1]->serve(1, alone));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  EXPECT_TRUE(stage.results[0].empty());
  stage.take(1, stage.servers[1]->resume(first));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  std::vector<double> expected(first.begin(), first.end());
  for (double& each : expected) each += 1;
  expect_near(stage.results[0].at(1), expected);
}

TEST(WeightServer, NothingIsHeardOfAAbortedGroup) {
  plans::Rng rng(3);
  ServedStage stage(3, 9000);
  stage.resume(drawn(rng, 9000));
  stage.serve(1, everybody(3));
  stage.push(0, 1, drawn(rng, 9000));
  stage.push(1, 1, drawn(rng, 9000));
  for (auto& server : stage.servers) server->abort(1);
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  stage.serve(1, everybody(3));  // Late.
  stage.serve(2, everybody(3));
  for (uint32_t i = 0; i < 3; ++i) stage.push(i, 2, drawn(rng, 9000));
  ASSERT_NO_FATAL_FAILURE(stage.deliver_all(rng));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(stage.results[i].contains(1));
    EXPECT_TRUE(stage.results[i].contains(2));
  }
}

TEST(WeightServer, DropsWhatDoesNotFit) {
  plans::Rng rng(4);
  ServedStage stage(2, 5000);
  stage.resume(drawn(rng, 5000));
  const size_t chunk_floats = stage.planes[0]->streams.at(TensorKind::PUSH).row_floats;
  const std::vector<float> chunk(chunk_floats, 1.0f);
  stage.serve(1, everybody(2), true);
  for (const TensorKind kind :
       {TensorKind::PUSH, TensorKind::PULL, TensorKind::GROUP_PUSH, TensorKind::GROUP_PULL}) {
    for (uint32_t microbatch : {0u, 4u, 5u, (1u << 20) - 1, 1u << 20, 1u << 21, UINT32_MAX}) {
      for (uint64_t number : {uint64_t{0}, uint64_t{1}, uint64_t{2}, UINT64_MAX}) {
        ASSERT_TRUE(stage.planes[0]->arrives(
            {kServedGeneration, ServedStage::id(0).value, kind, number, microbatch}, chunk));
      }
    }
  }
  EXPECT_TRUE(stage.results[0].empty());
}

}  // namespace
}  // namespace skein::actors
