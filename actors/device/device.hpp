#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "actors/replica/outgoing.hpp"
#include "gpu/device.hpp"

namespace skein::actors {

/// Who hears that a piece of work has ended.
using WorkListener = caf::typed_actor<caf::reacts_to<WorkDone>>;

/// A piece of work on its way through a device.
struct DevicePiece {
  uint64_t token = 0;  // The sender's, for WorkDone.
  gpu::Work work;
  Outgoing output;  // What the work makes and others need.
  WorkListener listener;
};
/// The piece belongs to the device from now on: whoever sent it keeps nothing of it.
struct DeviceRequest {
  std::shared_ptr<DevicePiece> piece;
};

}  // namespace skein::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(skein::actors::DeviceRequest)

namespace skein::actors {

/// A GPU, or some threads of the processor, which run work in order, one piece at a time: spawn it
/// detached. Its mailbox is the only queue. An output leaves from its thread as soon as it is made,
/// before anybody hears that the work has ended.
///   in   DeviceRequest   a piece of work
///   out  WorkDone        to the listener, once per request; the work holds nothing any more
using Device = caf::typed_actor<caf::reacts_to<DeviceRequest>>;

struct DeviceState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "device";
  std::shared_ptr<gpu::Device> device;
};

Device::behavior_type device(Device::stateful_pointer<DeviceState> self,
                             std::shared_ptr<gpu::Device> device);

/// Sends what the piece has made if `status` is ok, and tells its listener, with `ended` and
/// `begun`, as `WorkDone` has them.
void finish(DevicePiece piece, absl::Status status, std::chrono::steady_clock::time_point ended,
            std::optional<std::chrono::steady_clock::time_point> begun = {});

}  // namespace skein::actors
