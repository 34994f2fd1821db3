#pragma once

#include <functional>
#include <memory>

#include "actors/device/device.hpp"
#include "gpu/device.hpp"
#include "tests/sim/shared_gate.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// What a device tells who watches.
struct DeviceWatch {
  std::function<void()> on_update_begun;  // It is given to the device.
  std::function<void()> on_update_ended;
  std::function<void(uint64_t group)> on_copied;  // A contribution to a group.
};

/// Whom a job asks before it uses a device that it shares.
struct DeviceSharing {
  std::shared_ptr<SharedGate> gate;  // Null: the device is the job's own.
  uint64_t job = 0;
  bool is_synchronous = true;
  std::function<uint64_t()> generation;  // That the process has last been told to prepare.
};

/// What goes wrong with a device for good.
enum class DeviceFailure {
  kFails,  // Its work fails from now on, and nothing is allocated, written to it or read from it.
  kHangs,  // The next piece of a pass never ends, and what comes behind it never begins.
};
/// `device`: one of `make_simulated_device`.
void break_device(gpu::Device& device, DeviceFailure how);
/// Does the real work of a host device on the spot. `times` are those at speed
/// 1 for work of share 1; an update is per block. `memory_bytes`: what it has of its own, as a GPU;
/// 0: it uses the host's.
std::shared_ptr<gpu::Device> make_simulated_device(World& world, const gpu::SleepProfile& times,
                                                   double speed, int64_t memory_bytes);
/// The actor of such a device: cooperative, and its work takes virtual time.
actors::Device spawn_simulated_device(World& world, ProcessId process, DeviceWatch watch,
                                      DeviceSharing sharing,
                                      const std::shared_ptr<gpu::Device>& device);

}  // namespace skein::sim
