#pragma once

#include <memory>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "net/reduce/gradient_group.hpp"

namespace skein::actors {

/// Who hears that a group is formed.
using FormListener = caf::typed_actor<caf::reacts_to<GroupFormed>>;
/// Who hears that a collective has ended.
using ReductionListener = caf::typed_actor<caf::reacts_to<ReductionDone>>;

/// Forms one group and runs its collectives, which block: spawn it detached.
///   in   FormGroup          once, first
///   in   ReductionRequest   the values are summed over the members in place
///   out  GroupFormed, ReductionDone   to the listener, once per request
using GroupIo = caf::typed_actor<caf::reacts_to<FormGroup, FormListener>,
                                 caf::reacts_to<ReductionRequest, ReductionListener>>;

struct GroupIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "group-io";
  plans::GroupId group;
  std::shared_ptr<net::GradientGroup> members;
};

GroupIo::behavior_type group_io(GroupIo::stateful_pointer<GroupIoState> self, plans::GroupId group,
                                std::shared_ptr<net::GradientGroup> members);

}  // namespace skein::actors
