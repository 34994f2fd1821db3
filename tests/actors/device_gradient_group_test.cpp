#include "actors/device_gradient_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/actors/fake_device_groups.hpp"

namespace skein::actors {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Workers whose boards tell each other everything, as the coordinator does.
class DeviceGradientGroupTest : public testing::Test {
 protected:
  /// `places` of their GPUs; empty: it has none.
  void start(const std::vector<std::string>& places) {
    for (size_t i = 0; i < places.size(); ++i) {
      GroupWorld* world = places[i].empty() ? nullptr : &world_;
      devices_.push_back(std::make_shared<FakeGroupDevice>(places[i], world));
      keepers_.push_back(std::make_shared<DeviceGroupKeeper>());
      boards_.push_back(net::RendezvousBoard::create(
          [this, i](const std::string& key, const std::vector<char>& value) {
            for (size_t other = 0; other < boards_.size(); ++other) {
              if (other != i) boards_[other]->deliver(key, value);
            }
          }));
    }
    said_.resize(places.size());
    groups_.resize(places.size());
  }

  /// Statuses of all members. Workers' numbers descend, so that ranks on devices are others.
  std::vector<absl::Status> connect(uint64_t generation, const std::string& backend = "auto") {
    std::vector<absl::Status> statuses(devices_.size());
    on_each([&](size_t rank) {
      DeviceGradientGroupOptions options;
      options.group.name = absl::StrCat("generation-", generation, "/group-0");
      options.group.rank = static_cast<uint32_t>(rank);
      options.group.rank_count = static_cast<uint32_t>(devices_.size());
      for (size_t i = devices_.size(); i > 0; --i) {
        options.members.push_back(plans::WorkerId{static_cast<uint32_t>(i)});
      }
      options.number = generation << 16;
      options.backend = backend;
      options.device = devices_[rank];
      options.keeper = keepers_[rank];
      options.say = [this, rank](const std::string& line) { said_[rank].push_back(line); };
      auto host = net::GradientGroup::create(options.group, boards_[rank]);
      groups_[rank] = make_device_gradient_group(options, boards_[rank], *std::move(host));
      statuses[rank] = groups_[rank]->connect();
    });
    return statuses;
  }

  void expect_sums() {
    on_each([&](size_t rank) {
      std::vector<float> values = {static_cast<float>(rank + 1), 1};
      const absl::Status status = groups_[rank]->all_reduce_sum(values);
      EXPECT_TRUE(status.ok()) << status;
      const auto count = static_cast<float>(devices_.size());
      EXPECT_THAT(values, ElementsAre(count * (count + 1) / 2, count));
    });
  }

  void on_each(const std::function<void(size_t)>& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < devices_.size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  GroupWorld world_;
  std::vector<std::shared_ptr<gpu::Device>> devices_;
  std::vector<std::shared_ptr<DeviceGroupKeeper>> keepers_;
  std::vector<std::shared_ptr<net::RendezvousBoard>> boards_;
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
    for (auto& group : groups_) group->abort();  // A halt while nothing runs.
    std::vector<float> values = {1};
    EXPECT_TRUE(absl::IsUnavailable(groups_[0]->all_reduce_sum(values)));
  }
  EXPECT_EQ(world_.formed, 2) << "both members once";
  for (const auto& keeper : keepers_) keeper->keep_only({{1}, {3}});
  for (const absl::Status& status : connect(4)) ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(world_.formed, 4) << "worker 2 was gone";
}

TEST_F(DeviceGradientGroupTest, AGroupThatIsAbortedInACallIsFormedAnew) {
  start({"a/0", "a/1"});
  for (const absl::Status& status : connect(1)) ASSERT_TRUE(status.ok()) << status;
  std::thread waits([&] {
    std::vector<float> values = {1};
    EXPECT_TRUE(absl::IsUnavailable(groups_[0]->all_reduce_sum(values)));
  });
  const auto is_waiting = [&] {
    std::lock_guard lock(world_.mutex);
    return world_.meetings["id-1"].values.size() == 1;
  };
  while (!is_waiting()) std::this_thread::yield();
  for (auto& group : groups_) group->abort();
  waits.join();
  for (const absl::Status& status : connect(2)) ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(world_.formed, 4);
  expect_sums();
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

TEST_F(DeviceGradientGroupTest, AnAbortWakesWhoWaitsForAnotherMember) {
  start({"a/0", "a/1"});
  groups_.resize(2);
  DeviceGradientGroupOptions options;
  options.group.name = "generation-1/group-0";
  options.group.rank_count = 2;
  options.members = {{1}, {2}};
  options.backend = "auto";
  options.device = devices_[0];
  options.keeper = keepers_[0];
  auto host = net::GradientGroup::create(options.group, boards_[0]);
  const auto group = make_device_gradient_group(options, boards_[0], *std::move(host));
  std::thread aborts([&] { group->abort(); });
  EXPECT_TRUE(absl::IsCancelled(group->connect()));
  aborts.join();
}

}  // namespace
}  // namespace skein::actors
