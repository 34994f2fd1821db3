// Groups over NCCL, with the emulated GPU and the stand-in for the library: a rank is a thread.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/cuda/load_cuda.hpp"
#include "gpu/device_group.hpp"

namespace skein::gpu {
namespace {

using Group = std::unique_ptr<DeviceGroup>;
using Start = DeviceGroup::Start;

constexpr int64_t kFloats = 50'000;  // Some chunks of the stand-in, the last one not whole.

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

DeviceGroup::Options options_of(double timeout_seconds) {
  DeviceGroup::Options options;
  options.name = "some group";
  options.form_timeout_seconds = timeout_seconds;
  options.operation_timeout_seconds = timeout_seconds;
  return options;
}

/// One rank: its device, some values in its memory, and its end of a group.
struct Rank {
  std::unique_ptr<Device> device;
  DeviceGroups* groups = nullptr;
  Buffer values;
  Group group;

  Rank() {
    device = load_cuda_device({}).value();
    groups = device->groups().value();
    values = device->allocate(kFloats * sizeof(float)).value();
  }
  void fill(float value) {
    ASSERT_TRUE(device->upload(std::vector<float>(kFloats, value), values.floats()).ok());
  }
  /// All equal, or NaN.
  float value() {
    std::vector<float> read(kFloats);
    EXPECT_TRUE(device->download(values.floats(), read).ok());
    for (float each : read) {
      if (each != read[0]) return NAN;
    }
    return read[0];
  }
  absl::Status reduce(DeviceGroup& in) {
    absl::Status status = in.all_reduce_sum(values.floats(), kFloats, Start::kBehindCompute);
    return status.ok() ? in.wait() : status;
  }
};

class NcclGroupTest : public testing::Test {
 protected:
  void SetUp() override { setenv("EMULATED_NCCL_HOST_PER_RANK", "1", 1); }

  void start(size_t count) {
    for (size_t i = 0; i < count; ++i) ranks_.push_back(std::make_unique<Rank>());
  }
  /// Runs `body` for ranks [0, count) at once.
  void on_each(size_t count, const std::function<void(int32_t, Rank&)>& body) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] { body(static_cast<int32_t>(i), *ranks_[i]); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void form(size_t count, const DeviceGroup::Options& options = options_of(20)) {
    const std::string id = ranks_[0]->groups->make_id().value();
    on_each(count, [&](int32_t rank, Rank& self) {
      auto group = self.groups->form(id, rank, static_cast<int32_t>(count), options);
      ASSERT_TRUE(group.ok()) << group.status();
      self.group = *std::move(group);
    });
  }
  /// Every rank puts in 1, 10, 100, ...; the sum says who took part.
  void expect_sum(size_t count, const std::function<DeviceGroup*(int32_t)>& group_of,
                  const std::function<float(int32_t)>& sum_of) {
    on_each(count, [&](int32_t rank, Rank& self) {
      if (group_of(rank) == nullptr) return;
      self.fill(static_cast<float>(std::pow(10, rank)));
      const absl::Status status = self.reduce(*group_of(rank));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(self.value(), sum_of(rank)) << "rank " << rank;
    });
  }
  DeviceGroup* own(int32_t rank) { return ranks_[static_cast<size_t>(rank)]->group.get(); }

  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST(NcclLibrary, WithoutItTheDeviceDeclinesInOneLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto decline = [] {
    setenv("SKEIN_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    const auto device = load_cuda_device({});
    if (!device.ok()) std::exit(2);
    const absl::Status status = (*device)->groups().status();
    const std::string message(status.message());
    const bool is_one_line = message.find('\n') == std::string::npos;
    const bool is_clear = message.find("cannot load NCCL: /nowhere") != std::string::npos;
    std::exit(absl::IsUnavailable(status) && is_one_line && is_clear ? 0 : 3);
  };
  EXPECT_EXIT(decline(), testing::ExitedWithCode(0), "");
}

TEST_F(NcclGroupTest, AllReduceGivesTheSumToAllAgainAndAgain) {
  for (size_t count : {2u, 3u, 4u}) {
    ranks_.clear();
    start(count);
    form(count);
    for (int round = 0; round < 3; ++round) {
      expect_sum(
          count, [&](int32_t rank) { return own(rank); },
          [&](int32_t) {
            return std::vector<float>{11, 111, 1111}[count - 2];
          });
    }
    EXPECT_EQ(own(0)->operations(), 3u);
    on_each(count, [](int32_t, Rank& self) { EXPECT_TRUE(self.group->close().ok()); });
    EXPECT_TRUE(absl::IsUnavailable(ranks_[0]->reduce(*own(0))));
  }
}

TEST_F(NcclGroupTest, BroadcastGivesTheRootsValuesAndComputeSeesThem) {
  start(3);
  form(3);
  for (int32_t root = 0; root < 3; ++root) {
    on_each(3, [&](int32_t rank, Rank& self) {
      self.fill(static_cast<float>(rank + 5));
      ASSERT_TRUE(
          self.group->broadcast(self.values.floats(), kFloats, root, Start::kBehindCompute).ok());
      // The download comes behind what compute waits for.
      ASSERT_TRUE(self.group->order_compute_behind().ok());
      EXPECT_EQ(self.value(), static_cast<float>(root + 5));
    });
  }
}

TEST_F(NcclGroupTest, MembersSendToEachOtherAtOnce) {
  start(3);
  form(3);
  on_each(3, [&](int32_t rank, Rank& self) {
    self.fill(static_cast<float>(rank + 1));
    Buffer in = self.device->allocate(kFloats * sizeof(float)).value();
    const DeviceGroup::Sent sent{self.values.floats(), kFloats, (rank + 1) % 3};
    const DeviceGroup::Received received{in.floats(), kFloats, (rank + 2) % 3};
    ASSERT_TRUE(self.group->exchange({&sent, 1}, {&received, 1}, Start::kBehindCompute).ok());
    const absl::Status status = self.group->wait();
    ASSERT_TRUE(status.ok()) << status;
    std::swap(self.values, in);
    EXPECT_EQ(self.value(), static_cast<float>((rank + 2) % 3 + 1));
  });
}

TEST_F(NcclGroupTest, Bfloat16NumbersTravelInTwoBytes) {
  start(2);
  form(2);
  on_each(2, [&](int32_t rank, Rank& self) {
    // An odd number of them, and behind them what must not be overwritten.
    constexpr int64_t kNumbers = kFloats + 1;
    self.fill(static_cast<float>(rank + 1));  // Upper halves are bfloat16, lower ones zeros.
    Buffer in = self.device->allocate(kFloats * sizeof(float)).value();
    ASSERT_TRUE(self.device->upload(std::vector<float>(kFloats, 7.0F), in.floats()).ok());
    const DeviceGroup::Sent sent{self.values.numbers(NumberType::kBfloat16), kNumbers, 1 - rank};
    const DeviceGroup::Received received{in.numbers(NumberType::kBfloat16), kNumbers, 1 - rank};
    ASSERT_TRUE(self.group->exchange({&sent, 1}, {&received, 1}, Start::kBehindCompute).ok());
    const absl::Status status = self.group->wait();
    ASSERT_TRUE(status.ok()) << status;
    std::vector<float> got(kFloats);
    ASSERT_TRUE(self.device->download(in.floats(), got).ok());
    // Two numbers are a float here; of the last one only the lower half has come.
    const auto halved = got.begin() + kNumbers / 2;
    EXPECT_EQ(std::count(got.begin(), halved, static_cast<float>(2 - rank)), kNumbers / 2);
    EXPECT_EQ(std::count(halved + 1, got.end(), 7.0F), got.end() - halved - 1);
  });
}

TEST_F(NcclGroupTest, FormingTimesOutWhenAMemberDoesNotComeAndTheNextTryWorks) {
  start(3);
  const std::string id = ranks_[0]->groups->make_id().value();
  on_each(2, [&](int32_t rank, Rank& self) {
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = self.groups->form(id, rank, 3, options_of(0.3)).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_NE(std::string(status.message()).find("some group, rank " + std::to_string(rank)),
              std::string::npos)
        << status;
    EXPECT_LT(seconds_since(start), 10);
  });
  form(2);
  expect_sum(
      2, [&](int32_t rank) { return own(rank); }, [](int32_t) { return 11; });
}

TEST_F(NcclGroupTest, AnAbortEndsFormingAtOnce) {
  start(2);
  auto options = options_of(60);
  const std::string id = ranks_[0]->groups->make_id().value();
  std::thread other([&] { options.abort->raise(); });
  const absl::Status status = ranks_[0]->groups->form(id, 0, 2, options).status();
  other.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(NcclGroupTest, AMissingMemberTimesTheOthersOutAndBreaksTheirGroup) {
  start(3);
  form(3, options_of(0.5));
  on_each(2, [&](int32_t, Rank& self) {
    const absl::Status status = self.reduce(*self.group);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_TRUE(self.group->is_broken());
    EXPECT_TRUE(absl::IsUnavailable(self.reduce(*self.group)));
    EXPECT_TRUE(absl::IsUnavailable(self.group->revoke()));
    self.group.reset();
  });
  form(2);
  expect_sum(
      2, [&](int32_t rank) { return own(rank); }, [](int32_t) { return 11; });
}

TEST_F(NcclGroupTest, AnAbortEndsARunningAllReduceAtOnce) {
  start(2);
  auto options = options_of(60);
  form(2, options);  // One signal for both.
  const auto start = std::chrono::steady_clock::now();
  std::thread other([&] { options.abort->raise(); });
  EXPECT_TRUE(absl::IsUnavailable(ranks_[0]->reduce(*own(0))));
  other.join();
  EXPECT_LT(seconds_since(start), 10);
}

/// Without rank 2, which never takes part: the two others go on.
void lose_one_and_go_on(std::vector<std::unique_ptr<Rank>>& ranks, int32_t rank, bool revokes) {
  Rank& self = *ranks[static_cast<size_t>(rank)];
  EXPECT_FALSE(self.reduce(*self.group).ok());
  if (revokes) {
    ASSERT_TRUE(self.group->revoke().ok());
    EXPECT_TRUE(absl::IsUnavailable(self.reduce(*self.group)));
  }
  const int32_t left = 2;
  auto smaller = self.group->shrink(
      {&left, 1}, revokes ? DeviceGroup::Shrink::kHealthy : DeviceGroup::Shrink::kAfterLoss,
      options_of(20));
  ASSERT_TRUE(smaller.ok()) << smaller.status();
  self.group = *std::move(smaller);
  EXPECT_EQ(self.group->rank(), rank);
  EXPECT_EQ(self.group->rank_count(), 2);
}

TEST_F(NcclGroupTest, SurvivorsShrinkAfterALossWithAndWithoutRevoking) {
  for (bool revokes : {false, true}) {
    ranks_.clear();
    start(3);
    auto options = options_of(0.3);
    options.on_failure = DeviceGroup::OnFailure::kKeep;
    form(3, options);
    on_each(2, [&](int32_t rank, Rank&) { lose_one_and_go_on(ranks_, rank, revokes); });
    expect_sum(
        2, [&](int32_t rank) { return own(rank); }, [](int32_t) { return 11; });
  }
}

/// What the library has not queued it still works with: revoking then would free that under it, on
/// which the stand-in ends the process.
TEST_F(NcclGroupTest, AGroupThatIsInACallIsNotRevokedAndIsFormedAnew) {
  start(2);
  auto options = options_of(20);
  options.on_failure = DeviceGroup::OnFailure::kKeep;
  options.operation_timeout_seconds = 0.1;
  form(2, options);
  setenv("EMULATED_NCCL_POLLS", "1000000000", 1);
  on_each(2, [&](int32_t, Rank& self) {
    const absl::Status status = self.reduce(*self.group);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  });
  unsetenv("EMULATED_NCCL_POLLS");
  on_each(2, [&](int32_t rank, Rank& self) {
    const int32_t left = 1 - rank;
    const absl::Status status =
        rank == 0 ? self.group->revoke()
                  : self.group->shrink({&left, 1}, DeviceGroup::Shrink::kAfterLoss, options_of(20))
                        .status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_NE(std::string(status.message()).find("form the group anew"), std::string::npos);
    self.group.reset();
  });
  form(2);
  expect_sum(
      2, [&](int32_t rank) { return own(rank); }, [](int32_t) { return 11; });
}

TEST_F(NcclGroupTest, AHealthyGroupShrinksWithoutWhoLeavesAndStaysUsable) {
  start(4);
  form(4);
  std::vector<Group> smaller(4);
  on_each(4, [&](int32_t rank, Rank& self) {
    if (rank == 1) return;
    const int32_t left = 1;
    auto made = self.group->shrink({&left, 1}, DeviceGroup::Shrink::kHealthy, options_of(20));
    ASSERT_TRUE(made.ok()) << made.status();
    smaller[static_cast<size_t>(rank)] = *std::move(made);
    EXPECT_EQ(smaller[static_cast<size_t>(rank)]->rank(), rank == 0 ? 0 : rank - 1);
  });
  expect_sum(
      4, [&](int32_t rank) { return smaller[static_cast<size_t>(rank)].get(); },
      [](int32_t) { return 1101; });
  expect_sum(
      4, [&](int32_t rank) { return own(rank); }, [](int32_t) { return 1111; });
}

TEST_F(NcclGroupTest, ASplitMakesSeveralGroupsAndLeavesSomeOut) {
  start(5);
  form(5);
  std::vector<Group> parts(5);
  on_each(5, [&](int32_t rank, Rank& self) {
    auto made = self.group->split(rank == 4 ? -1 : rank % 2, options_of(20));
    ASSERT_TRUE(made.ok()) << made.status();
    parts[static_cast<size_t>(rank)] = *std::move(made);
  });
  EXPECT_EQ(parts[4], nullptr);
  expect_sum(
      5, [&](int32_t rank) { return parts[static_cast<size_t>(rank)].get(); },
      [](int32_t rank) { return rank % 2 == 0 ? 101 : 1010; });
  // A part outlives the group that it came from.
  on_each(5, [&](int32_t, Rank& self) { self.group.reset(); });
  expect_sum(
      5, [&](int32_t rank) { return parts[static_cast<size_t>(rank)].get(); },
      [](int32_t rank) { return rank % 2 == 0 ? 101 : 1010; });
}

TEST_F(NcclGroupTest, ASplitOrShrinkThatOneDoesNotJoinTimesOutAndBreaksTheParent) {
  for (bool splits : {true, false}) {
    ranks_.clear();
    start(3);
    auto options = options_of(20);
    options.on_failure = DeviceGroup::OnFailure::kKeep;
    form(3, options);
    on_each(1, [&](int32_t, Rank& self) {
      const int32_t left = 2;
      const absl::Status status =
          splits ? self.group->split(0, options_of(0.3)).status()
                 : self.group->shrink({&left, 1}, DeviceGroup::Shrink::kHealthy, options_of(0.3))
                       .status();
      EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
      EXPECT_TRUE(self.group->is_broken());
      EXPECT_TRUE(absl::IsUnavailable(self.group->close()));
    });
  }
}

TEST_F(NcclGroupTest, TwoMembersOnOneGpuOfOneHostAreRefusedWithTheLibrarysWords) {
  unsetenv("EMULATED_NCCL_HOST_PER_RANK");
  start(2);
  EXPECT_EQ(ranks_[0]->groups->info().place, ranks_[1]->groups->info().place);
  const std::string id = ranks_[0]->groups->make_id().value();
  on_each(2, [&](int32_t rank, Rank& self) {
    const absl::Status status = self.groups->form(id, rank, 2, options_of(20)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(std::string(status.message()).find("Duplicate GPU detected"), std::string::npos);
  });
}

TEST_F(NcclGroupTest, WhatCannotBeAGroupIsRefused) {
  start(1);
  const std::string id = ranks_[0]->groups->make_id().value();
  for (auto [rank, count] : {std::pair{-1, 2}, {2, 2}, {0, 0}}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(ranks_[0]->groups->form(id, rank, count, options_of(1)).status()));
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(ranks_[0]->groups->form("short", 0, 2, options_of(1)).status()));
}

TEST_F(NcclGroupTest, AbilitiesAreThoseOfTheLibrary) {
  start(1);
  const DeviceGroups::Info& info = ranks_[0]->groups->info();
  EXPECT_EQ(info.library.find("nccl 2."), 0u) << info.library;
  EXPECT_TRUE(info.can_split && info.can_shrink && info.can_revoke);
}

}  // namespace
}  // namespace skein::gpu
