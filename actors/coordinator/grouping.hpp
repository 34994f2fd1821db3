#pragma once

#include <memory>
#include <optional>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::actors {

/// Who carries the policy's decisions to the members.
using GroupingListener = caf::typed_actor<caf::reacts_to<GroupStarted>>;

/// Lets the policy of a plan decide which replicas combine what they have, and when. One for all
/// stages of a generation.
///   in   ReadySignal        a replica is through with its part of a step
///   in   GroupOutcome       a group has ended
///   in   MembershipChange   a column has come or gone
///   in   TickAtom           from itself, when the policy wished it; one too early is dropped
///   out  GroupStarted       to the listener: the members combine now
/// A repeat of any of them changes nothing.
using Grouping =
    caf::typed_actor<caf::reacts_to<plans::ReadySignal>, caf::reacts_to<plans::GroupOutcome>,
                     caf::reacts_to<plans::MembershipChange>, caf::reacts_to<TickAtom>>;

struct GroupingState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "grouping";

  Grouping::stateful_pointer<GroupingState> self = nullptr;
  std::shared_ptr<plans::GroupScheduler> policy;
  uint64_t generation = 0;
  GroupingListener listener;
  std::optional<uint64_t> wake_us;  // The wish in force.

  uint64_t now_us() const;
  void apply(plans::GroupDecisions decisions);
  void on_tick();
};

Grouping::behavior_type grouping(Grouping::stateful_pointer<GroupingState> self,
                                 std::shared_ptr<plans::GroupScheduler> policy, uint64_t generation,
                                 GroupingListener listener);

}  // namespace skein::actors
