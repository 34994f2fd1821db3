#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "actors/device/device_gate.hpp"
#include "actors/device/device_share.hpp"
#include "actors/device/shared_memory.hpp"
#include "gpu/device.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::actors {

/// The device of a worker process that serves several jobs. Each job has its own view of it, whose
/// memory is counted together with the others', and whose work waits for the job's turn. A job
/// whose work hangs does not hold up the others: they have threads, or streams, of their own.
/// Source: CrossoverScheduler, arXiv 2103.07974. Thread-safe.
class SharedDevice {
 public:
  SharedDevice() = default;

  using Make =
      std::function<absl::StatusOr<std::shared_ptr<gpu::Device>>(const plans::DeviceSpec&)>;
  /// Takes in the job whose run has this id, until the `share` of what it gets is gone. `make`
  /// makes the device as a job alone has it. InvalidArgument, by key, if the job wants another
  /// device than those that are here; AlreadyExists if the run is here.
  absl::StatusOr<WorkerDevice> join(const plans::JobSpec& job, const std::string& run,
                                    const Make& make);

 private:
  const std::shared_ptr<DeviceGate> gate_ = std::make_shared<DeviceGate>();
  const std::shared_ptr<SharedMemory> memory_ = std::make_shared<SharedMemory>();
  std::mutex mutex_;
  std::optional<plans::DeviceSpec> spec_;  // That all jobs have. Guarded by mutex_.
};

/// The same on all workers of the run.
uint64_t device_job_number(const std::string& run);

/// InvalidArgument with the first key of `device.*` in which jobs that share a device differ.
absl::Status check_same_device(const plans::DeviceSpec& has, const plans::DeviceSpec& wants);

}  // namespace skein::actors
