#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/device/shared_device.hpp"
#include "actors/fail_point.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::actors {

struct WorkerOptions {
  std::string coordinator_address;  // "host:port"
  /// Where other workers connect for tensors. A worker that finds that its machine has lost the
  /// address when it connects to the coordinator again ends with Unavailable: it is to be started
  /// anew with another one.
  std::string bind_address = "127.0.0.1";
  bool insecure = false;  // Allows one that is not a loopback address.
  /// Number of this worker among those of its machine, from 0: GPUs are dealt out by it.
  int32_t local_rank = 0;
  /// Changes what the job says of the device; may be null.
  std::function<void(plans::DeviceSpec&)> change_device;
  /// The name of its machine, as others are told; empty: as the system says.
  std::string host_name;
  double connect_timeout_seconds = 30;
  /// Told, from any thread, when the coordinator does not answer at once: why, and for how long it
  /// is waited for. May be null.
  std::function<void(const std::string& why, double seconds)> on_waiting;
  FailPointHandle fail_point;  // Set by tests; else null.
  /// With other jobs of this process; null: it is the job's own.
  std::shared_ptr<SharedDevice> device;
  /// Parses the job file that the coordinator sends (the cli knows the format).
  std::function<absl::StatusOr<plans::JobSpec>(const std::string& toml)> parse_job;
  /// The digest of a job's configuration. Null: the coordinator's word is taken for it.
  std::function<uint64_t(const plans::JobSpec&)> digest_job;
};

/// A worker's half of a run inside this process, which may have one of several runs. Thread-safe.
class WorkerProcess {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> start(WorkerOptions options);
  virtual ~WorkerProcess() = default;

  /// Asks the coordinator to move our state away, and leaves the job when that is done.
  virtual void leave(const std::string& reason) = 0;
  /// Waits for the end, at most `timeout_seconds`. False if it has not come.
  virtual bool wait(double timeout_seconds) = 0;
  /// Ok when the coordinator said stop, at the end of the run or after `leave`. Valid once `wait`
  /// has returned true.
  virtual const absl::Status& result() const = 0;
  /// A device or a disk is still at work for the run, which nobody is to wait for: destruction
  /// would. Valid like `result`.
  virtual bool is_at_work() const = 0;
};

}  // namespace skein::actors
