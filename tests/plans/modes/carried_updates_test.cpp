#include "plans/modes/carried_updates.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

/// Three columns of two stages.
struct Columns {
  ColumnLayout layout{3, 2};
  CarriedUpdates carried{layout};

  std::vector<GroupMember> members(uint32_t stage, const std::vector<uint32_t>& columns) const {
    std::vector<GroupMember> all;
    for (uint32_t column : columns) all.push_back({layout.replica(stage, column), 0, 1});
    return all;
  }
  void combine(uint32_t stage, const std::vector<uint32_t>& columns, bool has_server = false) {
    const std::vector<GroupMember> all = members(stage, columns);
    std::set<ReplicaId> replicas;
    for (const GroupMember& each : all) replicas.insert(each.replica);
    const CarriedUpdates::Counts counts = carried.put_in(stage, all, has_server);
    carried.on_combined(stage, replicas, counts, has_server);
  }
};

TEST(CarriedUpdates, AnUpdateIsWithItsColumnUntilItIsSharedAtEveryStage) {
  Columns columns;
  columns.carried.on_update(0);
  EXPECT_EQ(columns.carried.carried(0, {0, 1, 2}), 1u);
  EXPECT_EQ(columns.carried.carried(0, {1, 2}), 0u);
  columns.combine(0, {0, 1});
  EXPECT_EQ(columns.carried.carried(0, {1, 2}), 0u) << "the other stage has not";
  columns.combine(1, {0, 2});
  EXPECT_EQ(columns.carried.carried(0, {1, 2}), 1u) << "a stage each";
  EXPECT_EQ(columns.carried.carried(0, {2}), 0u);
  columns.carried.on_update(0);
  EXPECT_EQ(columns.carried.carried(0, {1, 2}), 1u);
}

TEST(CarriedUpdates, WhatWasSharedIsHandedOn) {
  Columns columns;
  columns.carried.on_update(0);
  for (uint32_t stage : {0u, 1u}) {
    columns.combine(stage, {0, 1});
    columns.combine(stage, {1, 2});
  }
  EXPECT_EQ(columns.carried.carried(0, {2}), 1u);
}

TEST(CarriedUpdates, AServerGivesWhatItHadWhenAGroupBegan) {
  Columns columns;
  columns.carried.on_update(0);
  columns.carried.on_update(1);
  for (uint32_t stage : {0u, 1u}) {
    columns.combine(stage, {0}, true);
    EXPECT_EQ(columns.carried.carried(0, {1, 2}), 0u) << "nobody has pulled";
    columns.combine(stage, {1}, true);
  }
  EXPECT_EQ(columns.carried.carried(0, {1}), 1u);
  EXPECT_EQ(columns.carried.carried(1, {0, 2}), 0u);
}

TEST(CarriedUpdates, WhatAPassiveMemberPutsInMayBeWithoutItsLastUpdate) {
  Columns columns;
  columns.carried.on_update(0);
  columns.carried.on_update(0);
  for (uint32_t stage : {0u, 1u}) {
    std::vector<GroupMember> all = columns.members(stage, {0, 1});
    all[0].is_passive = true;
    const CarriedUpdates::Counts counts = columns.carried.put_in(stage, all, false);
    columns.carried.on_combined(stage, {all[0].replica, all[1].replica}, counts, false);
  }
  EXPECT_EQ(columns.carried.carried(0, {1}), 1u);
  columns.carried.on_common();
  EXPECT_EQ(columns.carried.carried(0, {1}), 2u);
}

}  // namespace
}  // namespace skein::plans
