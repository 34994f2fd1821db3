// What a rank of a column does with a model and another member, whose part the test plays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/averaging/model_floats.hpp"
#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"
#include "tests/actors/averaging/flying_plane.hpp"
#include "tests/actors/replica/replica_rig.hpp"

namespace skein::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Body = RecordingLink::Body;

constexpr plans::ReplicaId kSelf{0}, kOther{1};

/// Of two columns of one stage, the first one.
struct ColumnRig : ReplicaRig {
  explicit ColumnRig(const std::string& policy = "sdpipe") : ReplicaRig(1, 2, false, 0, policy) {
    device->ops = std::make_shared<gpu::HostOps>(pool);
    WeightExchange::Options options;
    options.streams.plane = other_plane;
    options.streams.generation = kGeneration;
    options.streams.self = kOther;
    options.floats_max = float_count(*model, ModelFloats::kWithMoments);
    options.streams.addresses = {{kSelf, "self"}, {kOther, "other"}};
    options.streams.on_chunk = [](const net::TensorKey&, const net::TensorHandle&) {};
    other = std::make_unique<WeightExchange>(std::move(options));
    start();
    end_all();
  }

  void lease(uint64_t step) { control(net::Claim{step, {2 * step, 2}, false}); }
  void column_commit(uint64_t step, bool has_next = true) {
    plans::UpdateOrder commit{step, 1, std::nullopt, false};
    if (has_next) commit.next = plans::SampleLease{2 * (step + 1), 2};
    control(commit);
  }
  struct Kind {
    bool passive = false, common = false, server = false, closing = false;
  };
  void combine(uint64_t number, Kind kind, bool alone = false) {
    net::Average average;
    average.replica = kSelf;
    average.number = number;
    average.is_passive = kind.passive;
    average.is_global = kind.common;
    average.is_closing = kind.common || kind.closing;
    average.has_server = kind.server;
    average.steps_done = kind.common ? 3 : 0;
    average.members = {{kSelf, 0, alone ? 1 : 0.25}};
    if (!alone) average.members.push_back({kOther, 0, 0.75});
    control(std::move(average));
  }
  void combine(uint64_t number) { combine(number, {}); }
  void dissolve(uint64_t number) { control(net::AbortGroup{kSelf, number}); }

  /// The other member puts in `value` everywhere.
  void other_begins(uint64_t number, float value, ModelFloats which = ModelFloats::kWeights) {
    other->begin(number, {{kSelf, 0, 0.25}, {kOther, 0, 0.75}},
                 std::vector<float>(float_count(*model, which), value));
  }
  /// Chunks go to and fro until none is on its way.
  void fly() {
    while (!plane->rows_sent.empty() || !flying.empty()) {
      while (!flying.empty()) {
        const net::DataPlane::Rows rows = flying.front().rows;
        flying.erase(flying.begin());
        plane->streams.at(rows.key.kind).on_tensor(rows.key, as_tensor(rows));
        run();
      }
      while (!plane->rows_sent.empty()) {
        const net::DataPlane::Rows rows = plane->rows_sent.front();
        plane->rows_sent.pop_front();
        other->on_chunk(rows.key, as_tensor(rows));
      }
    }
  }
  static net::TensorHandle as_tensor(const net::DataPlane::Rows& rows) {
    struct Tensor {
      std::vector<float> values;
      std::span<float> span;
    };
    auto tensor = std::make_shared<Tensor>();
    tensor->values.assign(rows.payload.begin(), rows.payload.end());
    tensor->span = tensor->values;
    return {tensor, &tensor->span};
  }

  std::vector<float> weights() const {
    std::vector<float> values;
    EXPECT_TRUE(read_floats(*model, ModelFloats::kWeights, values).ok());
    return values;
  }
  /// Groups that it says to be through with.
  std::vector<std::pair<uint64_t, bool>> through() const {
    std::vector<std::pair<uint64_t, bool>> found;
    for (auto body : link->bodies(Body::COMBINED)) {
      found.emplace_back(body.getCombined().getNumber(), body.getCombined().getOk());
    }
    return found;
  }
  /// Up to the end of the update behind step 0.
  void update() {
    lease(0);
    end_all();
    column_commit(0);
    end_one();
  }

  gpu::ThreadPool pool{1};
  std::vector<Flying> flying;
  std::shared_ptr<FlyingPlane> other_plane = std::make_shared<FlyingPlane>("other", flying);
  std::unique_ptr<WeightExchange> other;
};

void expect_mix(const std::vector<float>& found, const std::vector<float>& own, float other) {
  ASSERT_EQ(found.size(), own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    ASSERT_NEAR(found[i], 0.25 * own[i] + 0.75 * other, 1e-6) << i;
  }
}

TEST(ReplicaAverages, AStepGoesFromLeaseToCommitToTheMeanToTheNextStep) {
  ColumnRig rig;
  EXPECT_EQ(rig.forwards(), 0);
  rig.update();
  EXPECT_THAT(rig.readies(), ElementsAre(0u));
  EXPECT_EQ(rig.updates(), 1);
  const std::vector<float> own = rig.weights();
  rig.combine(5);
  rig.other_begins(5, 2);
  rig.end_all();
  EXPECT_THAT(rig.through(), IsEmpty());
  rig.fly();
  EXPECT_EQ(rig.forwards(), 2) << "not before the mean is written";
  rig.end_all();
  EXPECT_THAT(rig.through(), ElementsAre(std::pair(5u, true)));
  expect_mix(rig.weights(), own, 2);
  EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
  EXPECT_THAT(rig.faults, IsEmpty());
}

TEST(ReplicaAverages, TheOtherMayBeFirst) {
  ColumnRig rig;
  rig.other_begins(5, 2);
  rig.fly();
  rig.update();
  const std::vector<float> own = rig.weights();
  rig.combine(5);
  rig.end_all();
  rig.fly();
  rig.end_all();
  expect_mix(rig.weights(), own, 2);
}

TEST(ReplicaAverages, AGroupOfOneGoesOnAtOnceAndSaysNothing) {
  ColumnRig rig;
  rig.update();
  rig.combine(5, {}, true);
  rig.end_all();
  EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
  EXPECT_THAT(rig.through(), IsEmpty());
}

/// 0: while the update runs, 1: while it copies, 2: while it waits for the other, 3: while it
/// writes, 4: when it is through.
TEST(ReplicaAverages, ADissolvedGroupLeavesWhatItHadUnlessItIsThrough) {
  for (int place = 0; place <= 4; ++place) {
    ColumnRig rig;
    rig.lease(0);
    rig.end_all();
    rig.column_commit(0);
    if (place > 0) rig.end_one();
    rig.combine(5);
    if (place > 1) rig.end_one();
    if (place > 2) {
      rig.other_begins(5, 2);
      rig.fly();
    }
    if (place > 3) rig.end_one();
    rig.dissolve(5);
    rig.dissolve(5);
    rig.end_all();
    EXPECT_THAT(rig.through(), ElementsAre(std::pair(5u, place > 2))) << place;
    EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u)) << place;
    // The next group is not disturbed by what is left of it.
    if (place <= 2) rig.other->dissolve(5);
    rig.column_commit(1);
    rig.end_one();
    const std::vector<float> own = rig.weights();
    rig.combine(6);
    rig.end_all();
    rig.other_begins(6, -1);
    rig.fly();
    rig.end_all();
    expect_mix(rig.weights(), own, -1);
    EXPECT_EQ(rig.through().size(), 2u);
    EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u, 2u)) << place;
  }
}

/// What the others add comes on top of the next update: as if the average had been taken behind it.
TEST(ReplicaAverages, APassiveMemberGoesOnAndHasTheAverageWithItsNextUpdate) {
  ColumnRig calm;
  const std::vector<float> before = calm.weights();
  calm.update();
  const std::vector<float> after = calm.weights();
  for (bool dissolves : {false, true}) {
    ColumnRig rig;
    rig.lease(0);
    rig.combine(5, {.passive = true});
    rig.end_all();
    EXPECT_THAT(rig.readies(), ElementsAre(0u)) << "it waits for nobody";
    if (dissolves) {
      rig.dissolve(5);
    } else {
      rig.other_begins(5, 2);
      rig.fly();
    }
    EXPECT_THAT(rig.through(), ElementsAre(std::pair(5u, !dissolves)));
    EXPECT_EQ(rig.weights(), before);
    rig.column_commit(0);
    rig.end_one();
    const std::vector<float> found = rig.weights();
    for (size_t i = 0; i < found.size(); ++i) {
      const double added = dissolves ? 0 : 0.75 * (2 - before[i]);
      ASSERT_NEAR(found[i], after[i] + added, 1e-5) << i;
    }
  }
}

TEST(ReplicaAverages, WhatAPassiveMemberWasGivenGoesIntoTheCommonMean) {
  ColumnRig rig;
  const std::vector<float> before = rig.weights();
  rig.combine(5, {.passive = true});
  rig.end_all();
  rig.other_begins(5, 2);
  rig.fly();
  rig.combine(6, {.common = true});
  rig.end_all();
  rig.other_begins(6, 0, ModelFloats::kWithMoments);
  rig.fly();
  rig.end_all();
  EXPECT_THAT(rig.through(), ElementsAre(std::pair(5u, true), std::pair(6u, true)));
  const std::vector<float> found = rig.weights();
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], 0.25 * (0.25 * before[i] + 0.75 * 2), 1e-6) << i;
  }
}

TEST(ReplicaAverages, ACommitBehindTheCommonMeanLetsItGoOnWithMoreSamples) {
  ColumnRig rig;
  rig.lease(0);
  rig.end_all();
  rig.column_commit(0, false);
  rig.end_all();
  rig.combine(6, {.common = true});
  rig.end_all();
  rig.other_begins(6, 0, ModelFloats::kWithMoments);
  rig.fly();
  rig.end_all();
  rig.commit(2);
  rig.commit(2);
  rig.lease(1);
  rig.end_all();
  EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
  rig.tell(RetireReplicas{3, 0, ReplicaRig::kGeneration});
  rig.end_all();
  EXPECT_THAT(rig.retired, ElementsAre(3u));
}

TEST(ReplicaAverages, RepeatsOfGroupsChangeNothing) {
  for (int place = 0; place <= 3; ++place) {
    ColumnRig rig;
    auto repeat_at = [&](int here) {
      if (here != place) return;
      if (here >= 1) rig.combine(4, {.passive = true});
      if (here >= 2) rig.combine(5);
    };
    rig.lease(0);
    rig.combine(4, {.passive = true});
    rig.end_all();
    rig.other_begins(4, 2);
    rig.fly();
    repeat_at(1);
    rig.end_all();
    rig.column_commit(0);
    rig.end_one();
    rig.combine(5);
    repeat_at(2);
    rig.end_all();
    rig.other_begins(5, 2);
    rig.fly();
    rig.end_all();
    rig.column_commit(1);
    repeat_at(3);
    rig.end_one();
    rig.combine(6, {}, true);
    rig.end_all();
    EXPECT_THAT(rig.through(), ElementsAre(std::pair(4u, true), std::pair(5u, true))) << place;
    EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u, 2u)) << place;
  }
}

/// A repeat must not stand in the way of the word that the group is dissolved.
TEST(ReplicaAverages, ADissolvedGroupIsOverAlsoWhenItWasToldTwice) {
  ColumnRig rig;
  rig.update();
  rig.combine(5);
  rig.combine(5);
  rig.dissolve(5);
  rig.end_all();
  EXPECT_THAT(rig.through(), ElementsAre(std::pair(5u, false)));
  EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
}

TEST(ReplicaAverages, AShardServesAlsoInASegmentWithoutSamplesForIt) {
  ColumnRig rig("ps");
  const std::vector<float> first = rig.weights();
  WeightServer server({{rig.other_plane,
                        ReplicaRig::kGeneration,
                        kOther,
                        {{kSelf, "self"}, {kOther, "other"}},
                        [](const net::TensorKey&, const net::TensorHandle&) {}},
                       first.size()});
  server.resume(first);
  server.serve(5, {{kSelf, 0, 0.25}, {kOther, 0, 0.75}});
  server.push(5, std::vector<float>(first.size(), 2));
  rig.combine(5, {.server = true, .closing = true});
  rig.end_all();
  for (const Flying& each : rig.flying) {
    rig.plane->streams.at(each.rows.key.kind)
        .on_tensor(each.rows.key, ColumnRig::as_tensor(each.rows));
    rig.run();
  }
  rig.end_all();
  EXPECT_THAT(rig.through(), ElementsAre(std::pair(5u, true)));
  const std::vector<float> found = rig.weights();
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], first[i] + 0.75 * 2, 1e-6) << i;
}

TEST(ReplicaAverages, AMessageForNobodyOrOfNoGroupChangesNothing) {
  ColumnRig rig;
  rig.update();
  net::Average for_nobody;
  for_nobody.replica = {1};
  rig.control(for_nobody);
  net::Average without_members;
  without_members.number = 9;
  rig.control(without_members);
  rig.control(net::AbortGroup{{7}, 0});
  rig.dissolve(3);
  rig.combine(5, {.server = true});  // There is none.
  rig.combine(5, {}, true);
  rig.end_all();
  EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
}

}  // namespace
}  // namespace skein::actors
