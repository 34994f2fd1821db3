#include "actors/coordinator/observer_io.hpp"

#include <utility>
#include "actors/end_process.hpp"

namespace skein::actors {

ObserverIo::behavior_type observer_io(ObserverIo::stateful_pointer<ObserverIoState> self,
                                      RunObserver* observer, std::function<void()> on_end) {
  end_process_on_failure(*self);
  self->state.observer = observer;
  self->state.on_end = std::move(on_end);
  return {
      [self](const plans::AssignPlan& assigned) {
        if (self->state.observer == nullptr) return;
        self->state.observer->on_plan(assigned.plan, assigned.predicted_step_us);
      },
      [self](const plans::ReportProfiles& report) {
        if (self->state.observer != nullptr) self->state.observer->on_profiles(report);
      },
      [self](const StepReport& report) {
        if (self->state.observer != nullptr) self->state.observer->on_step(report);
      },
      [self](const ValidationReport& report) {
        if (self->state.observer != nullptr) self->state.observer->on_validation(report);
      },
      [self](const CheckpointReport& report) {
        if (self->state.observer != nullptr) self->state.observer->on_checkpoint(report);
      },
      [self](const TimingsReport& report) {
        if (self->state.observer != nullptr) self->state.observer->on_timings(report);
      },
      [self](const EventReport& report) {
        if (self->state.observer != nullptr) self->state.observer->on_event(report);
      },
      [self](EndAtom) {
        self->state.on_end();
        self->quit();
      },
  };
}

}  // namespace skein::actors
