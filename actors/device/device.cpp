#include "actors/device/device.hpp"

#include <utility>

#include <caf/send.hpp>

#include "actors/end_process.hpp"
#include "actors/microseconds.hpp"

namespace skein::actors {

Device::behavior_type device(Device::stateful_pointer<DeviceState> self,
                             std::shared_ptr<gpu::Device> device) {
  end_process_on_failure(*self);
  self->state.device = std::move(device);
  return {
      [self](const DeviceRequest& request) {
        DevicePiece piece = std::move(*request.piece);
        std::optional<std::chrono::steady_clock::time_point> begun;
        piece.work.on_begin = [self, &begun] { begun = self->clock().now(); };
        absl::Status status = self->state.device->run(std::move(piece.work));
        piece.work = {};
        finish(std::move(piece), std::move(status), self->clock().now(), begun);
      },
  };
}

void finish(DevicePiece piece, absl::Status status, std::chrono::steady_clock::time_point ended,
            std::optional<std::chrono::steady_clock::time_point> begun) {
  if (status.ok()) piece.output.send(to_us(ended));
  caf::anon_send(piece.listener, WorkDone{piece.token, std::move(status), ended, begun});
}

}  // namespace skein::actors
