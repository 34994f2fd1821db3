#pragma once

#include <memory>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "gpu/device.hpp"

namespace skein::actors {

/// Who hears that work has finished.
using WorkListener = caf::typed_actor<caf::reacts_to<WorkDone>>;

/// Owns one device and shares it among the replicas of a worker. The device has its own thread:
/// this actor never waits for it.
///   in   DeviceWork   queued on the device in the order of arrival
///   out  WorkDone     to the listener, once per piece of work, with its token
using DeviceQueue = caf::typed_actor<caf::reacts_to<DeviceWork, WorkListener>>;

struct DeviceQueueState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "device-queue";
  std::shared_ptr<gpu::Device> device;
};

DeviceQueue::behavior_type device_queue(DeviceQueue::stateful_pointer<DeviceQueueState> self,
                                        std::shared_ptr<gpu::Device> device);

}  // namespace skein::actors
