#pragma once

#include <memory>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::actors {

/// Who carries a stage's decisions to the members.
using StageListener = caf::typed_actor<caf::reacts_to<plans::GroupStartDecision>>;

/// Lets the policy of one stage decide who combines gradients, and when.
///   in   ReadySignal          a replica's gradient is complete; a repeat changes nothing
///   out  GroupStartDecision   to the listener: the members run their collective now
using Stage = caf::typed_actor<caf::reacts_to<plans::ReadySignal>>;

struct StageState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "stage";
  std::shared_ptr<plans::GroupScheduler> policy;
  uint64_t generation = 0;
  StageListener listener;
};

Stage::behavior_type stage(Stage::stateful_pointer<StageState> self,
                           std::shared_ptr<plans::GroupScheduler> policy, uint64_t generation,
                           StageListener listener);

}  // namespace skein::actors
