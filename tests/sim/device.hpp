#pragma once

#include <memory>

#include "gpu/device.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// What a device tells who watches.
struct DeviceWatch {
  std::function<void()> on_update_begun;  // It is given to the device.
  std::function<void()> on_update_ended;
  std::function<void(uint64_t group)> on_copied;  // What is put into it.
  /// Times at speed 1 for work of share 1; an update is per block.
  gpu::SleepProfile times;
};

/// Does the real work of a host device on the spot, and takes virtual time for it.
std::shared_ptr<gpu::Device> make_simulated_device(World& world, ProcessId process,
                                                   DeviceWatch watch, double speed);

}  // namespace skein::sim
