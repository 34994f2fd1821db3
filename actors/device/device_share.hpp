#pragma once

#include <cstdint>
#include <memory>

#include "gpu/device.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/share/turn_report.hpp"

namespace skein::actors {

/// A job's part of a device that other jobs use as well, from the worker's joining the job to its
/// end, when it is destroyed. Thread-safe.
class DeviceShare {
 public:
  virtual ~DeviceShare() = default;
  // As those of `plans::DeviceTurns`, for the job.
  virtual void enter(uint64_t position) = 0;
  virtual void leave() = 0;
  /// The run was resumed with these keys.
  virtual void change(const plans::SharingSpec& sharing) = 0;
  virtual void begin_passes() = 0;
  virtual void end_passes() = 0;
  virtual bool is_waiting() const = 0;
  virtual plans::TurnReport report() const = 0;
};

/// What a worker has of a device.
struct WorkerDevice {
  std::shared_ptr<gpu::Device> device;
  std::shared_ptr<DeviceShare> share;  // Null: no other job uses it.
};

}  // namespace skein::actors
