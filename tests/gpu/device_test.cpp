#include "gpu/device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#include "gpu/ops.hpp"

namespace skein::gpu {
namespace {

TEST(HostDevice, RunsOnePieceAtATimeWhoeverCalls) {
  auto device = make_host_device(2);
  int running = 0, pieces = 0;
  auto call = [&] {
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(device
                      ->run({WorkKind::kOther,
                             [&](Ops&) {
                               EXPECT_EQ(++running, 1);
                               ++pieces;
                               --running;
                               return absl::OkStatus();
                             }})
                      .ok());
    }
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(pieces, 400);
}

TEST(HostDevice, LetsGoOfWhatTheWorkHolds) {
  auto device = make_host_device(1);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  Work work;
  work.run = [held = std::move(held)](Ops&) { return absl::OkStatus(); };
  EXPECT_TRUE(device->run(std::move(work)).ok());
  EXPECT_TRUE(watch.expired());
}

TEST(HostDevice, PassesTheErrorOfWorkOn) {
  auto device = make_host_device(1);
  EXPECT_TRUE(absl::IsAborted(
      device->run({WorkKind::kOther, [](Ops&) { return absl::AbortedError("no"); }})));
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

TEST(HostDevice, GeluIsFiniteFarFromZero) {
  auto device = make_host_device(1);
  std::vector<float> x;
  for (int i = -2000; i <= 2000; ++i) x.push_back(static_cast<float>(i) * 0.05F);
  std::vector<float> y(x.size()), dy(x.size(), 1.0F);
  const auto count = static_cast<int64_t>(x.size());
  EXPECT_TRUE(device
                  ->run({WorkKind::kOther,
                         [&](Ops& ops) {
                           ops.gelu_forward(x.data(), y.data(), count);
                           ops.gelu_backward(x.data(), dy.data(), count);
                           return absl::OkStatus();
                         }})
                  .ok());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::abs(x[i]) < 10) continue;
    EXPECT_NEAR(y[i], std::max(x[i], 0.0F), 1e-4) << x[i];
    // Where the logistic function is one, its last bit may be missing: divisions go by way of the
    // processor's own reciprocal. The derivative has that bit times x and the argument's slope.
    const float slope = 1.6F * (1 + 0.134F * x[i] * x[i]);
    EXPECT_NEAR(dy[i], x[i] > 0 ? 1 : 0, 1e-4F + 6e-8F * std::abs(x[i]) * slope) << x[i];
  }
}

TEST(SleepDevice, SkipsTrainingWorkAndDoesTheRest) {
  auto device = make_sleep_device({});
  bool ran = false;
  auto mark = [&ran](Ops&) {
    ran = true;
    return absl::OkStatus();
  };
  EXPECT_TRUE(device->run({WorkKind::kForward, mark}).ok());
  EXPECT_TRUE(device->run({WorkKind::kUpdate, mark}).ok());
  EXPECT_FALSE(ran);
  EXPECT_TRUE(device->run({WorkKind::kOther, mark}).ok());
  EXPECT_TRUE(ran);
}

/// Microseconds that a device under the scenario takes for the piece, whose own time is 1 ms.
double taken_us(const char* scenario, const plans::WorkPiece& piece, double speed = 1) {
  auto device =
      make_sleep_device({1000, 1000, 1000}, speed, plans::parse_scenario(scenario).value());
  Work work{WorkKind::kForward, {}};
  work.piece = piece;
  work.device_count = 4;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(device->run(std::move(work)).ok());
  const auto taken = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::micro>(taken).count();
}

TEST(SleepDevice, TakesWhatTheScenarioSays) {
  // A sleep of half a second is told from none on any machine.
  EXPECT_GE(taken_us("H3 sleep=500000", {.device = 2, .step = 6, .index = 0}), 501000);
  EXPECT_LT(taken_us("H3 sleep=500000", {.device = 2, .step = 7, .index = 0}), 500000);
  EXPECT_LT(taken_us("H3 sleep=500000", {.device = 2, .step = 6, .index = -1}), 500000);
  EXPECT_LT(taken_us("H1 sleep=500000 probability=1", {.device = -1, .index = 0}), 500000);
  EXPECT_GE(taken_us("H2 factor=300 devices=1", {.device = 1}), 300000);
  EXPECT_GE(taken_us("H2 factor=100 devices=1", {.device = 1, .index = -1}, 0.25), 400000)
      << "on top of the device's own speed";
  EXPECT_LT(taken_us("H2 factor=300 devices=1", {.device = 0}), 300000);
  EXPECT_GE(taken_us("H6 trace=0:3:0.005", {.device = 3}), 200000);
}

TEST(SlowedDevice, TakesWhatTheScenarioSaysAndGivesTheSameResults) {
  auto device = make_slowed_device(make_host_device(1), 1,
                                   plans::parse_scenario("H4 sleep=50000 probability=1").value());
  bool ran = false;
  Work work{WorkKind::kForward, [&ran](Ops&) {
              ran = true;
              return absl::AbortedError("no");
            }};
  work.piece = {.device = 0, .step = 3, .index = 0};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(absl::IsAborted(device->run(std::move(work))));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(50000));
  EXPECT_TRUE(ran);
}

TEST(SleepDevice, TakesAtLeastItsTime) {
  auto device = make_sleep_device({2000, 0, 0});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(device->run({WorkKind::kForward, {}}).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(10000));
}

TEST(SlowedDevice, GivesTheSameResultsAndItsSpeed) {
  auto device = make_slowed_device(make_host_device(1), 0.5);
  EXPECT_EQ(device->info().speed, 0.5);
  float sum[2] = {0, 0};
  const float a[2] = {1, 2};
  EXPECT_TRUE(device
                  ->run({WorkKind::kForward,
                         [&](Ops& ops) {
                           ops.add(a, a, sum, 2);
                           return absl::OkStatus();
                         }})
                  .ok());
  EXPECT_EQ(sum[1], 4);
}

TEST(SleepDevice, SleepsInProportionToShareAndSlowness) {
  const SleepProfile profile{1000, 3000, 50};
  EXPECT_EQ(sleep_us(profile, WorkKind::kForward, 1, 1), 1000);
  EXPECT_EQ(sleep_us(profile, WorkKind::kBackward, 1, 1), 3000);
  EXPECT_EQ(sleep_us(profile, WorkKind::kUpdate, 1, 1), 50);
  for (WorkKind kind : {WorkKind::kForward, WorkKind::kBackward, WorkKind::kUpdate}) {
    const double whole = sleep_us(profile, kind, 1, 1);
    for (double share : {0.0, 0.25, 1.0, 12.0}) {
      for (double speed : {0.1, 0.25, 1.0, 2.0}) {
        EXPECT_DOUBLE_EQ(sleep_us(profile, kind, share, speed), whole * share / speed);
      }
    }
  }
  EXPECT_EQ(sleep_us(profile, WorkKind::kBackwardInput, 1, 0.5) +
                sleep_us(profile, WorkKind::kBackwardWeight, 1, 0.5),
            sleep_us(profile, WorkKind::kBackward, 1, 0.5));
}

constexpr double kHourUs = 3.6e9;

// An hour of work ends at once, or the test's time is over.
TEST(SleepDevice, TakesItsNewSpeedFromTheNextPieceOn) {
  auto device = make_sleep_device({kHourUs, 0, 0});
  device->set_speed(1e9);
  EXPECT_TRUE(device->run({WorkKind::kForward, {}}).ok());
  EXPECT_EQ(device->info().speed, 1.0) << "what it was made with";
}

/// Uses the processor for 1 ms.
absl::Status burn(Ops&) {
  const clock_t start = clock();
  while (clock() - start < CLOCKS_PER_SEC / 1000) {
  }
  return absl::OkStatus();
}

TEST(SlowedDevice, BecomesSlowAndRecoversWhileItRuns) {
  auto device = make_slowed_device(make_host_device(1), 1.0);
  const auto start = std::chrono::steady_clock::now();
  device->set_speed(0.02);
  EXPECT_TRUE(device->run({WorkKind::kForward, burn}).ok());
  // The processor time of the process is that of the thread and a little of the test's.
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));

  device->set_speed(1e-7);  // A millisecond would take hours.
  device->set_speed(1.0);
  EXPECT_TRUE(device->run({WorkKind::kForward, burn}).ok());
}

TEST(SlowedDevice, SparesWarmUps) {
  auto device = make_slowed_device(make_host_device(1), 1e-7);  // A millisecond would take hours.
  EXPECT_TRUE(device->run({WorkKind::kWarmUp, burn}).ok());
}

TEST(SlowedDevice, IsItsInnerDeviceAtFullSpeed) {
  auto device = make_slowed_device(make_host_device(1), 1.0);
  EXPECT_EQ(device->info().name, make_host_device(1)->info().name);
  EXPECT_TRUE(device->run({WorkKind::kForward, {}}).ok()) << "work with nothing to run";
  EXPECT_TRUE(absl::IsAborted(
      device->run({WorkKind::kOther, [](Ops&) { return absl::AbortedError("no"); }})));
}

TEST(HostDevice, HasNoEmulatedSpeed) {
  auto device = make_host_device(1);
  device->set_speed(1e-9);
  EXPECT_TRUE(device->run({WorkKind::kForward, burn}).ok());
}

}  // namespace
}  // namespace skein::gpu
