#include "actors/collectives/device_gradient_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/actors/collectives/fake_device_groups.hpp"

namespace skein::actors {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Workers whose rendezvous stores tell each other what is for them, as the coordinator does.
class DeviceGradientGroupTest : public testing::Test {
 protected:
  /// `places` of their GPUs; empty: it has none.
  void start(const std::vector<std::string>& places) {
    for (size_t i = 0; i < places.size(); ++i) {
      GroupWorld* world = places[i].empty() ? nullptr : &world_;
      devices_.push_back(std::make_shared<FakeGroupDevice>(places[i], world));
      group_stores_.push_back(std::make_shared<DeviceGroupStore>());
      stores_.push_back(net::RendezvousStore::create(
          [this, i](const std::string& key, const std::vector<char>& value,
                    const net::RendezvousStore::Receivers& receivers) {
            for (size_t other = 0; other < stores_.size(); ++other) {
              const bool receives =
                  receivers.empty() ||
                  std::find(receivers.begin(), receivers.end(), worker(other)) != receivers.end();
              if (other == i || !receives) continue;
              ++delivered_;
              stores_[other]->deliver(key, value);
            }
          }));
    }
    said_.resize(places.size());
    groups_.resize(places.size());
  }

  using Ranks = std::vector<size_t>;
  static constexpr uint32_t kWorkersMax = 9;
  /// Numbers of workers descend, so that ranks on devices are others.
  static plans::WorkerId worker(size_t index) {
    return {kWorkersMax - static_cast<uint32_t>(index)};
  }

  /// Statuses of the members of the groups of a plan; no worker is in two.
  std::vector<absl::Status> connect(uint64_t generation, const std::string& backend = "auto",
                                    std::vector<Ranks> wanted = {}) {
    if (wanted.empty()) {
      wanted.emplace_back();
      for (size_t i = 0; i < devices_.size(); ++i) wanted[0].push_back(i);
    }
    std::vector<absl::Status> statuses(devices_.size());
    on_each([&](size_t index) {
      groups_[index].reset();
      for (size_t group = 0; group < wanted.size(); ++group) {
        const Ranks& ranks = wanted[group];
        const auto found = std::find(ranks.begin(), ranks.end(), index);
        if (found == ranks.end()) continue;
        make(generation, backend, wanted, group, static_cast<size_t>(found - ranks.begin()));
        statuses[index] = groups_[index]->connect();
      }
    });
    return statuses;
  }

  /// As `plans::PlanParts` has it.
  static std::optional<plans::DeviceGroupPart> group_part(const std::vector<Ranks>& wanted,
                                                          size_t group, size_t index) {
    plans::DeviceGroupPart part;
    part.id = plans::GroupId{static_cast<uint32_t>(group)};
    part.rank_count = static_cast<uint32_t>(wanted[group].size());
    uint32_t rank = 0;
    for (size_t member : wanted[group]) {
      part.members.push_back(worker(member));
      if (worker(member) < worker(index)) ++rank;
    }
    const auto& members = wanted[group];
    const bool is_member = std::find(members.begin(), members.end(), index) != members.end();
    const bool leads = index == wanted[0][0];
    if (!is_member && !leads) return std::nullopt;
    if (is_member) part.rank = rank;
    if (!leads && part.rank != 0u) part.members.clear();
    return part;
  }

  void make(uint64_t generation, const std::string& backend, const std::vector<Ranks>& wanted,
            size_t group, size_t rank) {
    const size_t index = wanted[group][rank];
    FormationRound::Options round;
    round.name = absl::StrCat("generation-", generation);
    round.self = worker(index);
    round.leader = worker(wanted[0][0]);
    for (size_t each = 0; each < wanted.size(); ++each) {
      std::optional<plans::DeviceGroupPart> part = group_part(wanted, each, index);
      if (part) round.groups.push_back(*std::move(part));
    }
    round.backend = backend;
    round.device = devices_[index];
    round.group_store = group_stores_[index];
    net::GradientGroup::Options host;
    host.name = absl::StrCat(round.name, "/group-", group);
    host.rank = static_cast<uint32_t>(rank);
    host.rank_count = static_cast<uint32_t>(wanted[group].size());
    for (size_t other = 0; other < wanted[group].size(); ++other) {
      if (other != rank) host.partners[static_cast<uint32_t>(other)] = worker(wanted[group][other]);
    }
    DeviceGradientGroupOptions options;
    options.backend = backend;
    options.devices.name = host.name;
    options.devices.id = plans::GroupId{static_cast<uint32_t>(group)};
    options.devices.number = generation << 16 | group;
    options.devices.self = round.self;
    options.devices.device = devices_[index];
    options.devices.group_store = group_stores_[index];
    options.devices.round = std::make_shared<FormationRound>(std::move(round), stores_[index]);
    options.devices.say = [this, index](const std::string& line) { said_[index].push_back(line); };
    groups_[index] = make_device_gradient_group(options, stores_[index],
                                                *net::GradientGroup::create(host, stores_[index]));
  }

  /// Each adds up with `count` members in all the number of its group.
  void expect_sums(size_t count = 0) {
    if (count == 0) count = devices_.size();
    on_each([&](size_t index) {
      if (!groups_[index]) return;
      std::vector<float> values = {2, 1};
      const absl::Status status = groups_[index]->all_reduce_sum(values);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_THAT(values, ElementsAre(2 * static_cast<float>(count), static_cast<float>(count)));
    });
  }

  /// Those but `lost` begin an operation, which then is aborted on all.
  void lose_in_an_operation(size_t lost) {
    std::vector<std::thread> wait;
    for (size_t index = 0; index < groups_.size(); ++index) {
      if (index == lost) continue;
      wait.emplace_back([this, index] {
        std::vector<float> values = {1};
        EXPECT_TRUE(absl::IsUnavailable(groups_[index]->all_reduce_sum(values)));
      });
    }
    const auto are_waiting = [&] {
      std::lock_guard lock(world_.mutex);
      return world_.meetings["id-1"].values.size() == wait.size();
    };
    while (!are_waiting()) std::this_thread::yield();
    for (auto& group : groups_) group->abort();
    for (std::thread& thread : wait) thread.join();
  }

  void on_each(const std::function<void(size_t)>& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < devices_.size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  GroupWorld world_;
  std::atomic<int> delivered_ = 0;
  std::vector<std::shared_ptr<gpu::Device>> devices_;
  std::vector<std::shared_ptr<DeviceGroupStore>> group_stores_;
  std::vector<std::shared_ptr<net::RendezvousStore>> stores_;
  std::vector<std::vector<std::string>> said_;
  std::vector<std::unique_ptr<net::GradientGroup>> groups_;
};

TEST_F(DeviceGradientGroupTest, GpusAddUpAmongThemselves) {
  start({"a/0", "a/1", "b/0"});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  for (const auto& group : groups_) EXPECT_TRUE(group->is_on_device());
  expect_sums();
  EXPECT_EQ(world_.ids, 1);
  EXPECT_THAT(said_[0], ElementsAre());
}

TEST_F(DeviceGradientGroupTest, UnlikeDevicesGoByTheirHostsAndGpusSayWhyInOneLine) {
  start({"a/0", ""});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  for (const auto& group : groups_) EXPECT_FALSE(group->is_on_device());
  expect_sums();
  EXPECT_EQ(world_.ids, 0);
  EXPECT_THAT(said_[0], ElementsAre(HasSubstr("by way of the hosts: member 1: a device of kind")));
  EXPECT_THAT(said_[1], ElementsAre());
}

TEST_F(DeviceGradientGroupTest, HostsAmongThemselvesSayNothing) {
  start({"", ""});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  expect_sums();
  EXPECT_THAT(said_[0], ElementsAre());
}

TEST_F(DeviceGradientGroupTest, InsistingOnNcclFailsOnAllWhereOneHasNone) {
  start({"a/0", ""});
  for (const absl::Status& status : connect(1, "nccl")) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
}

TEST_F(DeviceGradientGroupTest, AGroupThatIsLeftWholeIsUsedAgain) {
  start({"a/0", "a/1"});
  for (uint64_t generation : {1, 2, 3}) {
    for (const absl::Status& status : connect(generation)) ASSERT_TRUE(status.ok()) << status;
    expect_sums();
    for (auto& group : groups_) group->abort();  // A quiesce while nothing runs.
    std::vector<float> values = {1};
    EXPECT_TRUE(absl::IsUnavailable(groups_[0]->all_reduce_sum(values)));
  }
  EXPECT_EQ(world_.formed, 2) << "both members once";
  for (const auto& group_store : group_stores_) group_store->keep_only({5});
  for (const absl::Status& status : connect(4)) ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(world_.formed, 4) << "the second was gone";
}

TEST_F(DeviceGradientGroupTest, AGroupThatIsAbortedInACallIsFormedAnew) {
  start({"a/0", "a/1"});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  lose_in_an_operation(1);
  for (const absl::Status& status : connect(2)) ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(world_.formed, 4);
  expect_sums();
}

TEST_F(DeviceGradientGroupTest, AfterALossTheOthersRevokeAndShrink) {
  world_.can_shrink = world_.can_revoke = true;
  start({"a/0", "a/1", "a/2", "a/3"});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  lose_in_an_operation(2);  // Another one goes as well, and had not begun it.
  EXPECT_EQ(world_.revoked, 3);
  for (const absl::Status& status : connect(2, "auto", {{0, 2, 3}})) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(world_.shrunk, 3);
  EXPECT_EQ(world_.revoked, 4) << "also by who was stopped outside of it";
  EXPECT_EQ(world_.formed, 4) << "nothing was formed from nothing";
  EXPECT_THAT(said_[0], ElementsAre(HasSubstr("shrunk their group of 4 members to one of 3")));
  expect_sums(3);
  for (size_t index : {0, 2, 3}) groups_[index]->abort();
  for (const absl::Status& status : connect(3, "auto", {{0, 2, 3}})) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(world_.shrunk, 3) << "it is kept like any other";
  expect_sums(3);
}

TEST_F(DeviceGradientGroupTest, WithoutRevokeALossMakesAGroupAnew) {
  world_.can_shrink = true;
  start({"a/0", "a/1", "a/2"});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  lose_in_an_operation(1);
  for (const absl::Status& status : connect(2, "auto", {{0, 2}})) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(world_.shrunk, 0);
  EXPECT_EQ(world_.formed, 5);
  expect_sums(2);
}

TEST_F(DeviceGradientGroupTest, ReplicasThatBecomeTwoStagesSplitTheirGroup) {
  world_.can_shrink = world_.can_split = world_.can_revoke = true;
  start({"a/0", "a/1", "a/2", "a/3"});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  for (auto& group : groups_) group->abort();  // A quiesce while nothing runs.
  for (const absl::Status& status : connect(2, "auto", {{0, 1}, {3, 2}})) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(world_.split, 4);
  EXPECT_EQ(world_.formed, 4);
  EXPECT_EQ(world_.revoked, 0);
  EXPECT_THAT(said_[3], ElementsAre(HasSubstr("split their group of 4 members to one of 2")));
  expect_sums(2);
}

TEST_F(DeviceGradientGroupTest, WhoLeavesAHealthyGroupGivesItUp) {
  world_.can_shrink = true;
  start({"a/0", "a/1", "a/2", "a/3"});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  for (auto& group : groups_) group->abort();
  // All are still there, so nobody has to revoke it; one shrink of a parent at most.
  for (const absl::Status& status : connect(2, "auto", {{0, 1}, {3, 2}})) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(world_.shrunk, 2);
  EXPECT_EQ(world_.formed, 6);
  expect_sums(2);
  for (auto& group : groups_) group->abort();
  for (const auto& group_store : group_stores_) EXPECT_EQ(group_store->offer().size(), 1u);
}

TEST_F(DeviceGradientGroupTest, WhenFormingFailsAgainAllGoByTheirHosts) {
  start({"a/0", "a/1"});
  world_.refuses = true;
  for (uint64_t generation : {1, 2}) {
    for (const absl::Status& status : connect(generation)) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    }
  }
  for (const absl::Status& status : connect(3)) ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(said_[1], ElementsAre(HasSubstr("forming failed 2 times, the last time with: no")));
  expect_sums();
  EXPECT_TRUE(absl::IsInvalidArgument(connect(4, "nccl")[0]));
}

TEST_F(DeviceGradientGroupTest, AProcessorThatLeadsTheRoundDecidesForTheGpus) {
  start({"", "", "a/0", "a/1"});
  for (const absl::Status& status : connect(1, "auto", {{0, 1}, {2, 3}})) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_FALSE(groups_[0]->is_on_device());
  EXPECT_TRUE(groups_[2]->is_on_device() && groups_[3]->is_on_device());
  expect_sums(2);
}

TEST_F(DeviceGradientGroupTest, EachTellsTheLeaderAndIsToldOfItsOwnGroupsOnly) {
  start({"a/0", "a/1", "a/2", "a/3", "a/4", "a/5"});
  for (const absl::Status& status : connect(1, "auto", {{0, 1}, {2, 3}, {4, 5}})) {
    ASSERT_TRUE(status.ok()) << status;
  }
  // Five words to the leader; five of it, as it has its own; three ids.
  EXPECT_EQ(delivered_, 5 + 5 + 3);
}

TEST_F(DeviceGradientGroupTest, AnAbortWakesWhoWaitsForAnotherMember) {
  start({"a/0", "a/1"});
  make(1, "auto", {{0, 1}}, 0, 0);
  std::thread aborts([&] { groups_[0]->abort(); });
  EXPECT_TRUE(absl::IsCancelled(groups_[0]->connect()));
  aborts.join();
}

}  // namespace
}  // namespace skein::actors
