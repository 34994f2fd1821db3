#include "gpu/device.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <vector>

#include "gpu/ops.hpp"

namespace skein::gpu {
namespace {

absl::Status run(Device& device, Work work) {
  std::promise<absl::Status> done;
  device.submit(std::move(work), [&](absl::Status status) { done.set_value(status); });
  return done.get_future().get();
}

TEST(HostDevice, RunsWorkInTheOrderOfSubmission) {
  auto device = make_host_device(2);
  std::vector<int> order;
  std::promise<void> last;
  for (int i = 0; i < 100; ++i) {
    device->submit({WorkKind::kOther,
                    [&order, i](Ops&) {
                      order.push_back(i);
                      return absl::OkStatus();
                    }},
                   [&last, i](absl::Status) {
                     if (i == 99) last.set_value();
                   });
  }
  last.get_future().wait();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(HostDevice, PassesTheErrorOfWorkOn) {
  auto device = make_host_device(1);
  EXPECT_TRUE(absl::IsAborted(
      run(*device, {WorkKind::kOther, [](Ops&) { return absl::AbortedError("no"); }})));
}

TEST(HostDevice, GivesZeroedMemoryAndRefusesTheImpossible) {
  auto device = make_host_device(1);
  auto buffer = device->allocate(1000);
  ASSERT_TRUE(buffer.ok());
  for (int i = 0; i < 250; ++i) EXPECT_EQ(buffer->floats()[i], 0.0F);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
  EXPECT_FALSE(device->allocate(-1).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(device->allocate(int64_t{1} << 55).status()));
}

TEST(SleepDevice, SkipsTrainingWorkAndDoesTheRest) {
  auto device = make_sleep_device({});
  bool ran = false;
  auto mark = [&ran](Ops&) {
    ran = true;
    return absl::OkStatus();
  };
  EXPECT_TRUE(run(*device, {WorkKind::kForward, mark}).ok());
  EXPECT_TRUE(run(*device, {WorkKind::kUpdate, mark}).ok());
  EXPECT_FALSE(ran);
  EXPECT_TRUE(run(*device, {WorkKind::kOther, mark}).ok());
  EXPECT_TRUE(ran);
}

TEST(SleepDevice, TakesAtLeastItsTime) {
  auto device = make_sleep_device({2000, 0, 0});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(run(*device, {WorkKind::kForward, {}}).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(10000));
}

TEST(SlowedDevice, GivesTheSameResultsAndItsSpeed) {
  auto device = make_slowed_device(make_host_device(1), 0.5);
  EXPECT_EQ(device->info().speed, 0.5);
  float sum[2] = {0, 0};
  const float a[2] = {1, 2};
  EXPECT_TRUE(run(*device, {WorkKind::kForward,
                            [&](Ops& ops) {
                              ops.add(a, a, sum, 2);
                              return absl::OkStatus();
                            }})
                  .ok());
  EXPECT_EQ(sum[1], 4);
}

}  // namespace
}  // namespace skein::gpu
