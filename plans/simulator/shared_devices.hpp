#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plans/job/job_spec.hpp"
#include "plans/share/device_turns.hpp"

namespace skein::plans {

/// Devices of a simulation that several jobs share, each given out as `DeviceTurns` decides. Not
/// thread-safe.
class SharedDevices {
 public:
  /// `grant`: told that a device begins with the piece that a job has asked for.
  using Grant = std::function<void(int32_t job, int32_t device, double now_us)>;
  SharedDevices(int32_t devices, const std::vector<SharingSpec>& jobs, Grant grant);

  void enter(int32_t job, int32_t device, uint64_t position, double now_us);
  TurnReport report(int32_t job, int32_t device) const;
  /// The job has at most one piece that waits, beside the one that runs.
  void request(int32_t job, int32_t device, const DevicePieceNeed& need, double now_us);
  void end(int32_t job, int32_t device, double now_us);

  /// When a device should be looked at although nothing has happened; infinity: never.
  double wake_us() const;
  void wake(double now_us);

 private:
  void advance(int32_t device, double now_us);

  std::vector<DeviceTurns> devices_;
  const Grant grant_;
};

}  // namespace skein::plans
