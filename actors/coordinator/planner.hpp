#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/fail_point.hpp"
#include "actors/messages.hpp"

namespace skein::actors {

/// Who hears the answers.
using PlannerListener = caf::typed_actor<caf::reacts_to<plans::PlanReady>>;

/// Plans, and simulates plans: what takes too long to be done between two messages of the
/// coordinator. Detached in a process, cooperative in the fault simulation.
///   in   RequestPlan, PlannerListener   answered by one PlanReady; the coordinator asks one thing
///                                       at a time
using Planner = caf::typed_actor<caf::reacts_to<plans::RequestPlan, PlannerListener>>;

struct PlannerConfig {
  FailPointHandle fail_point;  // Set by tests; else null.
};

Planner::behavior_type planner(Planner::stateful_pointer<PlannerConfig> self, PlannerConfig config);

}  // namespace skein::actors
