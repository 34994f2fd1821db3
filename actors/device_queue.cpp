#include "actors/device_queue.hpp"

#include <utility>

#include <caf/send.hpp>

namespace skein::actors {

DeviceQueue::behavior_type device_queue(DeviceQueue::stateful_pointer<DeviceQueueState> self,
                                        std::shared_ptr<gpu::Device> device) {
  self->state.device = std::move(device);
  return {
      [self](const DeviceWork& request, const WorkListener& listener) {
        self->state.device->submit(request.work,
                                   [listener, token = request.token](absl::Status status) {
                                     caf::anon_send(listener, WorkDone{token, std::move(status)});
                                   });
      },
  };
}

}  // namespace skein::actors
