#include "actors/collectives/stage_link_io.hpp"

#include <utility>
#include "actors/end_process.hpp"

namespace skein::actors {

StageLinkIo::behavior_type stage_link_io(StageLinkIo::stateful_pointer<StageLinkIoState> self,
                                         plans::GroupId group, std::shared_ptr<StageLink> link) {
  end_process_on_failure(*self);
  self->state.group = group;
  self->state.link = std::move(link);
  return {
      [self](const FormGroup& request, const FormListener& listener) {
        const absl::StatusOr<bool> connected = self->state.link->connect();
        GroupFormed formed{request.generation, self->state.group, connected.status()};
        formed.is_on_device = connected.ok() && *connected;
        formed.memory = self->state.link->take_memory();
        self->send(listener, std::move(formed));
      },
      [self](const TransferRequest& request, const TransferListener& listener) {
        StageLink& link = *self->state.link;
        absl::Status status = request.is_sent
                                  ? link.send(request.values, request.count, request.peer)
                                  : link.receive(request.values, request.count, request.peer);
        self->send(listener, TransferDone{request.key, std::move(status)});
      },
  };
}

}  // namespace skein::actors
