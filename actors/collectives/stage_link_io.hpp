#pragma once

#include <memory>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/collectives/group_io.hpp"
#include "actors/collectives/stage_link.hpp"
#include "actors/messages.hpp"

namespace skein::actors {

/// Who hears that rows have been sent or received.
using TransferListener = caf::typed_actor<caf::reacts_to<TransferDone>>;

/// Forms one link between the devices of two stages and passes on rows, which blocks: spawn it
/// detached.
///   in   FormGroup         once, first
///   in   TransferRequest   rows are sent or received, one request after the other
///   out  GroupFormed, TransferDone   to the listener, once per request
using StageLinkIo = caf::typed_actor<caf::reacts_to<FormGroup, FormListener>,
                                     caf::reacts_to<TransferRequest, TransferListener>>;

struct StageLinkIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "stage-link-io";
  plans::GroupId group;
  std::shared_ptr<StageLink> link;
};

StageLinkIo::behavior_type stage_link_io(StageLinkIo::stateful_pointer<StageLinkIoState> self,
                                         plans::GroupId group, std::shared_ptr<StageLink> link);

}  // namespace skein::actors
