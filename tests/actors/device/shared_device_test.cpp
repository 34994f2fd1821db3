#include "actors/device/shared_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "actors/device/device_gate.hpp"

namespace skein::actors {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::shared_ptr<gpu::Device>> make_host(const plans::DeviceSpec&) {
  return std::shared_ptr<gpu::Device>(gpu::make_host_device(1));
}

plans::JobSpec job_with(int64_t memory_mb = 0, int64_t priority = 0) {
  plans::JobSpec job;
  job.device.memory_limit_mb = memory_mb;
  job.sharing.priority = priority;
  return job;
}

WorkerDevice join(SharedDevice& device, const plans::JobSpec& job, const std::string& run) {
  absl::StatusOr<WorkerDevice> part = device.join(job, run, make_host);
  EXPECT_TRUE(part.ok()) << part.status();
  return *std::move(part);
}

gpu::Work piece(plans::PieceNeed need, std::function<void()> run, bool ends_pass = false) {
  gpu::Work work;
  work.need = {need, ends_pass};
  work.run = [run = std::move(run)](gpu::Ops&) {
    run();
    return absl::OkStatus();
  };
  return work;
}

TEST(SharedDevice, OnePieceRunsAtATimeWhoeverGivesIt) {
  SharedDevice device;
  std::vector<WorkerDevice> parts;
  for (const char* run : {"a", "b", "c"}) parts.push_back(join(device, job_with(), run));
  std::atomic<int> running = 0;
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (const WorkerDevice& part : parts) {
    threads.emplace_back([&, part] {
      for (int i = 0; i < 200; ++i) {
        const auto need = i % 3 == 0 ? plans::PieceNeed::kAside : plans::PieceNeed::kTurn;
        const auto status = part.device->run(piece(need, [&] {
          EXPECT_EQ(++running, 1);
          std::this_thread::yield();
          --running;
          ++done;
        }));
        EXPECT_TRUE(status.ok());
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(done, 600);
}

TEST(SharedDevice, PassesOfJobsThatTakeTurnsAlternate) {
  SharedDevice device;
  const WorkerDevice first = join(device, job_with(), "a");
  const WorkerDevice second = join(device, job_with(), "b");
  const uint64_t head = first.share->report().head;
  EXPECT_GT(head, 0u) << "a worker says that it shares its device";
  EXPECT_FALSE(first.share->report().has_turns);
  first.share->enter(head + 1);
  second.share->enter(head + 2);
  EXPECT_TRUE(second.share->report().has_turns);
  std::string order;
  const auto run_passes = [&](const WorkerDevice& part, char name) {
    for (int pass = 0; pass < 20; ++pass) {
      for (bool is_last : {false, true}) {
        EXPECT_TRUE(part.device
                        ->run(piece(
                            plans::PieceNeed::kTurn, [&] { order.push_back(name); }, is_last))
                        .ok());
      }
    }
    part.share->leave();
  };
  std::thread other([&] { run_passes(second, 'b'); });
  run_passes(first, 'a');
  other.join();
  std::string expected;
  for (int pass = 0; pass < 20; ++pass) expected += "aabb";
  EXPECT_EQ(order, expected);
}

TEST(SharedDevice, SaysWhenItBeginsWithAPieceThatHadToWait) {
  SharedDevice device;
  const WorkerDevice first = join(device, job_with(), "a");
  const WorkerDevice second = join(device, job_with(), "b");
  std::atomic<int> begun = 0;
  gpu::Work at_once = piece(plans::PieceNeed::kTurn, [] {});
  at_once.on_begin = [&] { ++begun; };
  EXPECT_TRUE(first.device->run(std::move(at_once)).ok());
  EXPECT_EQ(begun, 0) << "the latency of the way there is no other job's";
  const uint64_t head = first.share->report().head;
  first.share->enter(head + 1);
  second.share->enter(head + 2);
  std::thread waits([&] {
    gpu::Work work = piece(
        plans::PieceNeed::kTurn, [&] { EXPECT_EQ(begun, 1); }, true);
    work.on_begin = [&] { ++begun; };
    EXPECT_TRUE(second.device->run(std::move(work)).ok());
  });
  while (!second.share->is_waiting()) std::this_thread::yield();
  first.share->leave();
  waits.join();
  EXPECT_EQ(begun, 1);
}

TEST(SharedDevice, AJobThatLeavesHoldsUpNobody) {
  SharedDevice device;
  WorkerDevice first = join(device, job_with(), "a");
  const WorkerDevice second = join(device, job_with(), "b");
  const uint64_t head = first.share->report().head;
  first.share->enter(head + 1);
  second.share->enter(head + 2);
  std::thread waits([&] {
    EXPECT_TRUE(second.device
                    ->run(piece(
                        plans::PieceNeed::kTurn, [] {}, true))
                    .ok());
  });
  first.share.reset();
  waits.join();
  EXPECT_TRUE(first.device->run(piece(plans::PieceNeed::kTurn, [] {})).ok())
      << "what is left of it is not stuck either";
}

TEST(SharedDevice, ARunIsThereOnceAndMayComeBack) {
  SharedDevice device;
  WorkerDevice part = join(device, job_with(), "a");
  EXPECT_TRUE(absl::IsAlreadyExists(device.join(job_with(), "a", make_host).status()));
  part = {};
  EXPECT_TRUE(device.join(job_with(), "a", make_host).ok());
}

TEST(SharedDevice, JobsThatWantUnlikeDevicesAreRefusedByKey) {
  SharedDevice device;
  const WorkerDevice part = join(device, job_with(), "a");
  plans::JobSpec other = job_with();
  other.device.threads = 3;
  const absl::Status refused = device.join(other, "b", make_host).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("device.threads = 3"));
}

TEST(SharedDevice, MemoryOfAllJobsIsCountedTogether) {
  SharedDevice device;
  const WorkerDevice first = join(device, job_with(4), "a");
  WorkerDevice second = join(device, job_with(4), "b");
  constexpr int64_t kMegabyte = int64_t{1} << 20;
  ASSERT_TRUE(first.device->reserve(3 * kMegabyte).ok());
  EXPECT_EQ(second.device->memory().limit, kMegabyte);
  const absl::Status refused = second.device->reserve(2 * kMegabyte);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1048576 bytes are missing"));
  ASSERT_TRUE(second.device->reserve(kMegabyte).ok());
  absl::StatusOr<gpu::Buffer> buffer = second.device->allocate(kMegabyte);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(second.device->memory().in_use, kMegabyte);
  EXPECT_FALSE(second.device->allocate(1).ok()) << "what others have set aside is theirs";
  EXPECT_TRUE(first.device->allocate(3 * kMegabyte).ok());
  *buffer = {};
  EXPECT_EQ(second.device->memory().in_use, 0);
  second.share.reset();
  EXPECT_TRUE(first.device->reserve(4 * kMegabyte).ok()) << "who has left needs nothing";
}

TEST(SharedDevice, TheNumberOfAJobFollowsFromItsRun) {
  EXPECT_EQ(device_job_number("run-1"), device_job_number("run-1"));
  EXPECT_NE(device_job_number("run-1"), device_job_number("run-2"));
}

TEST(DeviceGate, APieceThatHangsDoesNotHoldUpOtherJobs) {
  plans::DeviceTurns::Options options;
  options.hang_us = 50'000;
  DeviceGate gate(options);
  gate.add({.number = 1});
  gate.add({.number = 2});
  const auto hangs = gate.begin(1, {plans::PieceNeed::kTurn});
  const auto other = gate.begin(2, {plans::PieceNeed::kTurn});
  gate.end(2, other);
  gate.end(1, hangs);
  gate.end(1, gate.begin(1, {plans::PieceNeed::kTurn}));
}

/// Somebody asks while another job's piece runs, which is silent from then on.
TEST(DeviceGate, WhoHasAskedWhileAnotherPieceRanIsNotForgotten) {
  plans::DeviceTurns::Options options;
  options.patience_us = 50'000;  // And a piece hangs after a minute only.
  DeviceGate gate(options);
  gate.add({.number = 1});
  gate.add({.number = 2});
  gate.enter(1, 10);
  gate.enter(2, 11);
  const auto first = gate.begin(1, {plans::PieceNeed::kTurn});
  std::atomic<bool> has_begun = false;
  std::thread waits([&] {
    gate.end(2, gate.begin(2, {plans::PieceNeed::kTurn, true}));
    has_begun = true;
  });
  while (!gate.is_waiting(2)) std::this_thread::yield();
  gate.end(1, first);
  for (int tenths = 0; tenths < 300 && !has_begun; ++tenths) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(has_begun) << "half a minute is more than its patience";
  if (!has_begun) gate.remove(2);
  waits.join();
}

TEST(DeviceGate, WhatIsLeftOfAnEarlierStayEndsNothing) {
  DeviceGate gate;
  gate.add({.number = 1});
  const auto old = gate.begin(1, {plans::PieceNeed::kTurn});
  gate.remove(1);
  gate.add({.number = 1});
  const auto own = gate.begin(1, {plans::PieceNeed::kTurn});
  gate.end(1, old);
  std::atomic<bool> has_begun = false;
  std::thread waits([&] {
    gate.end(1, gate.begin(1, {plans::PieceNeed::kTurn}));
    has_begun = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_begun) << "its own piece still runs";
  gate.end(1, own);
  waits.join();
}

TEST(SharedDevice, TheSpeedOfAWorkerIsThatOfItsNumberInTheFirstJob) {
  SharedDevice device;
  plans::JobSpec first = job_with();
  first.device.speeds = {1, 0.5};
  plans::JobSpec second = first;
  second.device.speed = 0.5;  // It is worker 2 there.
  const WorkerDevice part = join(device, first, "a");
  EXPECT_TRUE(device.join(second, "b", make_host).ok());
}

TEST(SharedDevice, AfterTheLastJobAnotherDeviceMayBeWanted) {
  SharedDevice device;
  WorkerDevice part = join(device, job_with(), "a");
  plans::JobSpec other = job_with();
  other.device.threads = 3;
  EXPECT_FALSE(device.join(other, "b", make_host).ok());
  part = {};
  EXPECT_TRUE(device.join(other, "b", make_host).ok());
}

/// Two workers are asked in unlike orders.
TEST(SharedMemory, TheSameJobIsRefusedEverywhere) {
  constexpr uint64_t first = 1;
  constexpr uint64_t second = 2;
  SharedMemory one;
  ASSERT_TRUE(one.reserve(first, 8, 12).ok());
  EXPECT_FALSE(one.reserve(second, 8, 12).ok()) << "at once: who is before it has it";
  SharedMemory other;
  ASSERT_TRUE(other.reserve(second, 8, 12).ok());
  std::thread waits([&] { EXPECT_TRUE(other.reserve(first, 8, 12).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(other.reserve(second, 9, 12).ok()) << "nor does it get more while that waits";
  other.forget(second);  // It was refused by the other worker.
  waits.join();
}

TEST(SharedMemory, AJobThatHasBecomeMoreImportantIsBeforeTheOther) {
  SharedMemory memory(std::chrono::seconds(60));
  ASSERT_TRUE(memory.reserve(2, 8, 12).ok());
  memory.set_priority(2, 5);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_FALSE(memory.reserve(1, 8, 12).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30)) << "at once";
}

TEST(SharedMemory, WhoHasJustComeAndIsMoreImportantMayReserveFirst) {
  SharedMemory memory(std::chrono::milliseconds(300));
  memory.set_priority(1, 0);
  memory.set_priority(2, 5);
  std::thread waits([&] { EXPECT_FALSE(memory.reserve(1, 8, 12).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(memory.reserve(2, 8, 12).ok());
  waits.join();
  SharedMemory other(std::chrono::milliseconds(20));
  other.set_priority(1, 0);
  other.set_priority(2, 5);
  EXPECT_TRUE(other.reserve(1, 8, 12).ok()) << "it does not come";
  SharedMemory unlimited(std::chrono::hours(1));
  unlimited.set_priority(1, 0);
  unlimited.set_priority(2, 5);
  EXPECT_TRUE(unlimited.reserve(1, 8, 0).ok()) << "at once: there is enough for both";
}

/// Measuring takes a moment: whoever is there first, the other one comes to it.
TEST(SharedMemory, WhatIsNeededForAMomentIsWaitedForWhoeverHasIt) {
  SharedMemory memory(std::chrono::seconds(60));
  for (const uint64_t waiter : {1u, 2u}) {
    const uint64_t holder = 3 - waiter;
    ASSERT_TRUE(memory.reserve_briefly(holder, 8, 12).ok());
    std::thread waits([&] { EXPECT_TRUE(memory.reserve_briefly(waiter, 8, 12).ok()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(memory.reserve(holder, 0, 12).ok());
    waits.join();
    memory.forget(waiter);
  }
  EXPECT_TRUE(memory.reserve_briefly(1, 13, 12).ok()) << "as on a device that nobody shares";
}

/// The old plan's memory is given back when the new one is there.
TEST(SharedMemory, AJobMayHaveTwoPlansForAMoment) {
  SharedMemory memory(std::chrono::milliseconds(1));
  ASSERT_TRUE(memory.reserve(1, 8, 12).ok());
  ASSERT_TRUE(memory.take(1, 8, 12).ok());
  ASSERT_TRUE(memory.reserve(1, 6, 12).ok());
  EXPECT_TRUE(memory.take(1, 6, 12).ok());
  EXPECT_FALSE(memory.take(1, 1, 12).ok()) << "more than it has reserved";
  EXPECT_FALSE(memory.take(2, 1, 12).ok());
  memory.give_back(1, 8);
  EXPECT_TRUE(memory.take(2, 1, 12).ok());
}

TEST(SharedMemory, TwoJobsAtOnceDoNotGetWhatIsThereForOne) {
  for (int round = 0; round < 200; ++round) {
    SharedMemory memory(std::chrono::milliseconds(1));
    std::atomic<int> granted = 0;
    std::vector<std::thread> threads;
    for (uint64_t job : {1u, 2u}) {
      threads.emplace_back([&, job] { granted += memory.reserve(job, 8, 12).ok() ? 1 : 0; });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(granted, 1);
  }
}

}  // namespace
}  // namespace skein::actors
