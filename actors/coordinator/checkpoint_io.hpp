#pragma once

#include <functional>
#include <string>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "actors/run_id.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::actors {

/// Who hears that a checkpoint is complete, or which one is whole.
using CheckpointListener =
    caf::typed_actor<caf::reacts_to<CheckpointCompleted>, caf::reacts_to<StartFound>,
                     caf::reacts_to<LeftStateFound>>;

/// Completes checkpoints whose stages have all been saved, and verifies those to go on from; blocks
/// on files: spawn it detached.
///   in   CheckpointRequest     reads the shards, writes indexes and COMPLETE, renames, deletes old
///                              ones; unless a later life of the coordinator has begun
///   in   DeletePartials        deletes what is left of those that will not be complete, likewise
///   in   StartRequest          reads the checkpoint to go on from, and the data
///   in   LeftStateRequest      makes a checkpoint of what workers have left; waits while they are
///                              writing it, and tries again twice a second while it cannot be read,
///                              or none can be written (a full disk)
///   out  CheckpointCompleted, StartFound, LeftStateFound   to the listener, once per request;
///                              before that LeftStateFound with `is_retried`, after each attempt in
///                              vain
using CheckpointIo = caf::typed_actor<caf::reacts_to<CheckpointRequest, CheckpointListener>,
                                      caf::reacts_to<plans::DeletePartials>,
                                      caf::reacts_to<StartRequest, CheckpointListener>,
                                      caf::reacts_to<LeftStateRequest, CheckpointListener>>;

struct CheckpointIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "checkpoint-io";
  plans::JobSpec job;
  RunPlace place;
  std::function<absl::Status()> check_later_life;  // As `Journal::later_life_check`.
};

CheckpointIo::behavior_type checkpoint_io(CheckpointIo::stateful_pointer<CheckpointIoState> self,
                                          plans::JobSpec job, RunPlace place,
                                          std::function<absl::Status()> check_later_life);

}  // namespace skein::actors
