#include "actors/collectives/group_io.hpp"

#include <utility>
#include "actors/end_process.hpp"

namespace skein::actors {

GroupIo::behavior_type group_io(GroupIo::stateful_pointer<GroupIoState> self, plans::GroupId group,
                                std::shared_ptr<net::GradientGroup> members) {
  end_process_on_failure(*self);
  self->state.group = group;
  self->state.members = std::move(members);
  return {
      [self](const FormGroup& request, const FormListener& listener) {
        GroupFormed formed{request.generation, self->state.group, self->state.members->connect()};
        formed.is_on_device = self->state.members->is_on_device();
        self->send(listener, std::move(formed));
      },
      [self](const ReductionRequest& request, const ReductionListener& listener) {
        self->send(listener, ReductionDone{self->state.group, request.step, request.bucket,
                                           self->state.members->all_reduce_sum(request.values)});
      },
  };
}

}  // namespace skein::actors
