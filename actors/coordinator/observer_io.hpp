#pragma once

#include <functional>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"

namespace skein::actors {

/// Hands reports to the `RunObserver`, whose files may block: spawn it detached.
///   in  AssignPlan, ReportProfiles, StepReport, ValidationReport, CheckpointReport, TimingsReport,
///   EventReport
///                  to the observer, in order
///   in  EndAtom    all reports are delivered: calls `on_end` and quits
using ObserverIo =
    caf::typed_actor<caf::reacts_to<plans::AssignPlan>, caf::reacts_to<plans::ReportProfiles>,
                     caf::reacts_to<StepReport>, caf::reacts_to<ValidationReport>,
                     caf::reacts_to<CheckpointReport>, caf::reacts_to<TimingsReport>,
                     caf::reacts_to<EventReport>, caf::reacts_to<EndAtom>>;

struct ObserverIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "observer-io";
  RunObserver* observer = nullptr;  // May be null: reports are dropped.
  std::function<void()> on_end;
};

ObserverIo::behavior_type observer_io(ObserverIo::stateful_pointer<ObserverIoState> self,
                                      RunObserver* observer, std::function<void()> on_end);

}  // namespace skein::actors
