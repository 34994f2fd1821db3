#include <time.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/device.hpp"
#include "gpu/host/host_memory.hpp"
#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"
#include "gpu/host/work_queue.hpp"
#include "plans/base/check.hpp"

namespace skein::gpu {
namespace {

using Clock = std::chrono::steady_clock;

/// A sleep ends late by the kernel's timer slack and the wake-up of an idle core, 0.1 ms and more;
/// the rest up to the deadline is spent awake.  // measured, 2 virtual cores, Nov 2026
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

/// Of the calling thread.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Does the work, then waits until it has taken 1 / speed of its time.
absl::Status run_slowed(const std::function<absl::Status(Ops&)>& run, Ops& ops, double speed,
                        bool counts_processor) {
  const Clock::time_point start = Clock::now();
  const double processor_start = processor_seconds();
  absl::Status status = run(ops);
  const double taken = counts_processor
                           ? processor_seconds() - processor_start
                           : std::chrono::duration<double>(Clock::now() - start).count();
  const std::chrono::duration<double> slowed(taken / speed);
  sleep_until(start + std::chrono::duration_cast<Clock::duration>(slowed));
  return status;
}

class SlowedDevice final : public Device {
 public:
  SlowedDevice(std::unique_ptr<Device> inner, double speed)
      : speed_(speed), info_(inner->info()), inner_(std::move(inner)) {
    SKEIN_CHECK(speed > 0) << speed;
    info_.speed = speed;
    if (speed != 1.0) info_.name = absl::StrCat(info_.name, " at speed ", speed);
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  void submit(Work work, std::function<void(absl::Status)> done) override {
    if (work.run) {
      // The wait is part of the work, so that the next piece starts behind it.
      work.run = [this, run = std::move(work.run)](Ops& ops) {
        const double speed = speed_;
        return speed < 1.0 ? run_slowed(run, ops, speed, info_.threads == 1) : run(ops);
      };
    }
    inner_->submit(std::move(work), std::move(done));
  }
  void set_speed(double speed) override {
    SKEIN_CHECK(speed > 0) << speed;
    speed_ = speed;
  }

 private:
  std::atomic<double> speed_;
  DeviceInfo info_;
  std::unique_ptr<Device> inner_;  // Last: its thread uses the others.
};

class SleepDevice final : public Device {
 public:
  SleepDevice(const SleepProfile& profile, double speed)
      : profile_(profile), speed_(speed), pool_(1), ops_(pool_) {
    SKEIN_CHECK(speed > 0) << speed;
    info_.name = speed == 1.0 ? "sleep" : absl::StrCat("sleep at speed ", speed);
    info_.speed = speed;
    info_.computes = false;
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return allocate_host(bytes); }
  void submit(Work work, std::function<void(absl::Status)> done) override {
    const Clock::time_point submitted = Clock::now();
    queue_.push([this, submitted, work = std::move(work), done = std::move(done)]() mutable {
      absl::Status status;
      if (work.kind == WorkKind::kOther) {
        status = work.run ? work.run(ops_) : absl::OkStatus();
      } else {
        // From when the device was free and had the work: the wake-up of its thread is no work.
        const Clock::time_point start = std::max(submitted, free_at_);
        free_at_ = start + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double, std::micro>(
                                   sleep_us(profile_, work.kind, work.share, speed_)));
        sleep_until(free_at_);
      }
      work = {};
      done(std::move(status));
    });
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
  HostOps ops_;
  Clock::time_point free_at_;  // End of the last sleep; used by the queue's thread only.
  WorkQueue queue_;            // Last: its thread uses the others.
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

std::unique_ptr<Device> make_slowed_device(std::unique_ptr<Device> inner, double speed) {
  return std::make_unique<SlowedDevice>(std::move(inner), speed);
}

std::unique_ptr<Device> make_sleep_device(const SleepProfile& profile, double speed) {
  return std::make_unique<SleepDevice>(profile, speed);
}

}  // namespace skein::gpu
