#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/device.hpp"
#include "gpu/host/host_memory.hpp"
#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"
#include "plans/base/check.hpp"

namespace skein::gpu {
namespace {

using Clock = std::chrono::steady_clock;

/// A sleep ends late by the kernel's timer slack and the wake-up of an idle core, 0.1 ms and more;
/// the rest up to the deadline is spent awake. // measured, 2 virtual cores, Nov 2026
constexpr auto kAwake = std::chrono::microseconds(200);

/// To the deadline itself, so that a late wake-up does not make the next one late.
void sleep_until(Clock::time_point deadline) {
  const auto since =
      std::chrono::duration_cast<std::chrono::nanoseconds>((deadline - kAwake).time_since_epoch());
  const timespec when{static_cast<time_t>(since.count() / 1'000'000'000),
                      static_cast<long>(since.count() % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) != 0) {
  }
  while (Clock::now() < deadline) {
  }
}

/// The processor time that the calling thread has used.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Clock::duration to_duration(double us) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::micro>(us));
}

/// Applies a scenario to the pieces of work of one device. Used by one thread at a time.
class DisturbedWork {
 public:
  explicit DisturbedWork(plans::Scenario scenario) : scenario_(std::move(scenario)) {}

  bool disturbs(const plans::WorkPiece& piece) const {
    return scenario_.kind != plans::Scenario::Kind::kH0 && piece.device >= 0;
  }

  /// When a piece that would take `work_us` ends if it starts at `start`.
  Clock::time_point end_of(plans::WorkPiece piece, int32_t device_count, double work_us,
                           Clock::time_point start) {
    if (!disturbs(piece)) return start + to_duration(work_us);
    if (!first_) first_ = start;
    piece.work_us = work_us;
    const double start_us = std::chrono::duration<double, std::micro>(start - *first_).count();
    const double end_us = plans::end_of_work(scenario_, piece, device_count, start_us);
    return start + to_duration(end_us - start_us);
  }

 private:
  plans::Scenario scenario_;
  std::optional<Clock::time_point> first_;  // Start of the first piece.
};

class SlowedDevice final : public Device {
 public:
  SlowedDevice(std::unique_ptr<Device> inner, double speed, plans::Scenario scenario)
      : speed_(speed),
        scenario_(std::move(scenario)),
        info_(inner->info()),
        inner_(std::move(inner)) {
    SKEIN_CHECK(speed > 0) << speed;
    info_.speed = speed;
    if (speed != 1.0) info_.name = absl::StrCat(info_.name, " at speed ", speed);
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  absl::StatusOr<Buffer> allocate_host_visible(int64_t bytes) override {
    return inner_->allocate_host_visible(bytes);
  }
  absl::Status upload(std::span<const float> from, float* to) override {
    return inner_->upload(from, to);
  }
  absl::Status download(const float* from, std::span<float> to) override {
    return inner_->download(from, to);
  }
  absl::StatusOr<DeviceGroups*> groups() override { return inner_->groups(); }
  DeviceMemory memory() const override { return inner_->memory(); }
  absl::Status run(Work work) override {
    if (work.run && work.kind != WorkKind::kWarmUp) {
      // The wait is part of the work, so that the next piece starts behind it.
      work.run = [this, run = std::move(work.run), piece = work.piece,
                  device_count = work.device_count](Ops& ops) {
        const double speed = std::min<double>(1.0, speed_);
        if (speed == 1.0 && !scenario_.disturbs(piece)) return run(ops);
        const Clock::time_point start = Clock::now();
        double taken_us = 0;
        absl::Status status = run_timed(run, ops, taken_us);
        sleep_until(scenario_.end_of(piece, device_count, taken_us / speed, start));
        return status;
      };
    }
    return inner_->run(std::move(work));
  }
  void set_speed(double speed) override {
    SKEIN_CHECK(speed > 0) << speed;
    speed_ = speed;
  }

 private:
  /// How long the work would take on a machine of its own.
  absl::Status run_timed(const std::function<absl::Status(Ops&)>& run, Ops& ops,
                         double& taken_us) const {
    const bool counts_processor = info_.threads == 1;
    const Clock::time_point start = Clock::now();
    const double processor_start = processor_seconds();
    absl::Status status = run(ops);
    status.Update(ops.finish());
    taken_us = counts_processor
                   ? (processor_seconds() - processor_start) * 1e6
                   : std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    return status;
  }

  std::atomic<double> speed_;
  DisturbedWork scenario_;  // Used by whoever runs work of `inner_`.
  DeviceInfo info_;
  std::unique_ptr<Device> inner_;
};

class SleepDevice final : public Device {
 public:
  SleepDevice(const SleepProfile& profile, double speed, plans::Scenario scenario)
      : profile_(profile), speed_(speed), pool_(1), ops_(pool_), scenario_(std::move(scenario)) {
    SKEIN_CHECK(speed > 0) << speed;
    info_.name = speed == 1.0 ? "sleep" : absl::StrCat("sleep at speed ", speed);
    info_.speed = speed;
    info_.computes = false;
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return allocate_host(bytes); }
  absl::Status run(Work work) override {
    const Clock::time_point given = work.given == Clock::time_point() ? Clock::now() : work.given;
    const std::lock_guard lock(mutex_);
    if (work.kind == WorkKind::kWarmUp) return absl::OkStatus();
    if (work.kind == WorkKind::kOther) return work.run ? work.run(ops_) : absl::OkStatus();
    // From when the device was free and had the work: the wake-up of a thread is no work.
    const Clock::time_point start = std::max(given, free_at_);
    free_at_ = scenario_.end_of(work.piece, work.device_count,
                                sleep_us(profile_, work.kind, work.share, speed_), start);
    sleep_until(free_at_);
    return absl::OkStatus();
  }

  void set_speed(double speed) override {
    SKEIN_CHECK(speed > 0) << speed;
    speed_ = speed;
  }

 private:
  SleepProfile profile_;
  std::atomic<double> speed_;
  DeviceInfo info_;
  ThreadPool pool_;
  std::mutex mutex_;  // Guards what follows.
  HostOps ops_;
  DisturbedWork scenario_;
  Clock::time_point free_at_;  // End of the last sleep.
};

}  // namespace

double sleep_us(const SleepProfile& profile, WorkKind kind, double share, double speed) {
  double us = profile.update_us;
  if (kind == WorkKind::kForward) us = profile.forward_us;
  if (kind == WorkKind::kBackward) us = profile.backward_us;
  if (kind == WorkKind::kBackwardInput || kind == WorkKind::kBackwardWeight) {
    us = profile.backward_us / 2;
  }
  return us * share / speed;
}

std::unique_ptr<Device> make_slowed_device(std::unique_ptr<Device> inner, double speed,
                                           plans::Scenario scenario) {
  return std::make_unique<SlowedDevice>(std::move(inner), speed, std::move(scenario));
}

std::unique_ptr<Device> make_sleep_device(const SleepProfile& profile, double speed,
                                          plans::Scenario scenario) {
  return std::make_unique<SleepDevice>(profile, speed, std::move(scenario));
}

}  // namespace skein::gpu
