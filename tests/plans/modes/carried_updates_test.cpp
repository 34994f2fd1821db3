#include "plans/modes/carried_updates.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

/// Three pipeline replicas of two stages.
struct Pipelines {
  PipelineLayout layout{3, 2};
  CarriedUpdates carried{layout};

  std::vector<GroupMember> members(uint32_t stage, const std::vector<uint32_t>& pipelines) const {
    std::vector<GroupMember> all;
    for (uint32_t pipeline : pipelines) all.push_back({layout.replica(stage, pipeline), 0, 1});
    return all;
  }
  /// At all stages.
  void update(uint32_t pipeline) {
    for (uint32_t stage = 0; stage < layout.stages; ++stage) carried.on_update(pipeline, stage);
  }
  void average(uint32_t stage, const std::vector<uint32_t>& pipelines, bool has_server = false) {
    const std::vector<GroupMember> all = members(stage, pipelines);
    std::set<ReplicaId> replicas;
    for (const GroupMember& each : all) replicas.insert(each.replica);
    const CarriedUpdates::Counts counts = carried.contribution(stage, all, has_server);
    carried.on_averaged(stage, replicas, counts, has_server);
  }
};

TEST(CarriedUpdates, AnUpdateIsWithItsPipelineUntilItIsSharedAtEveryStage) {
  Pipelines pipelines;
  pipelines.update(0);
  EXPECT_EQ(pipelines.carried.carried(0, {0, 1, 2}), 1u);
  EXPECT_EQ(pipelines.carried.carried(0, {1, 2}), 0u);
  pipelines.average(0, {0, 1});
  EXPECT_EQ(pipelines.carried.carried(0, {1, 2}), 0u) << "the other stage has not";
  pipelines.average(1, {0, 2});
  EXPECT_EQ(pipelines.carried.carried(0, {1, 2}), 1u) << "a stage each";
  EXPECT_EQ(pipelines.carried.carried(0, {2}), 0u);
  pipelines.update(0);
  EXPECT_EQ(pipelines.carried.carried(0, {1, 2}), 1u);
}

TEST(CarriedUpdates, WhatWasSharedIsHandedOn) {
  Pipelines pipelines;
  pipelines.update(0);
  for (uint32_t stage : {0u, 1u}) {
    pipelines.average(stage, {0, 1});
    pipelines.average(stage, {1, 2});
  }
  EXPECT_EQ(pipelines.carried.carried(0, {2}), 1u);
}

TEST(CarriedUpdates, AServerGivesWhatItHadWhenAGroupBegan) {
  Pipelines pipelines;
  pipelines.update(0);
  pipelines.update(1);
  for (uint32_t stage : {0u, 1u}) {
    pipelines.average(stage, {0}, true);
    EXPECT_EQ(pipelines.carried.carried(0, {1, 2}), 0u) << "nobody has pulled";
    pipelines.average(stage, {1}, true);
  }
  EXPECT_EQ(pipelines.carried.carried(0, {1}), 1u);
  EXPECT_EQ(pipelines.carried.carried(1, {0, 2}), 0u);
}

TEST(CarriedUpdates, WhatANonblockingMemberPutsInMayBeWithoutItsLastUpdate) {
  Pipelines pipelines;
  pipelines.update(0);
  pipelines.update(0);
  for (uint32_t stage : {0u, 1u}) {
    std::vector<GroupMember> all = pipelines.members(stage, {0, 1});
    all[0].is_nonblocking = true;
    const CarriedUpdates::Counts counts = pipelines.carried.contribution(stage, all, false);
    pipelines.carried.on_averaged(stage, {all[0].replica, all[1].replica}, counts, false);
  }
  EXPECT_EQ(pipelines.carried.carried(0, {1}), 1u);
  pipelines.carried.on_global();
  EXPECT_EQ(pipelines.carried.carried(0, {1}), 2u);
}

}  // namespace
}  // namespace skein::plans
