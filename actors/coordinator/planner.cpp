#include "actors/coordinator/planner.hpp"

#include <utility>

#include "actors/end_process.hpp"
#include "actors/microseconds.hpp"

namespace skein::actors {

Planner::behavior_type planner(Planner::stateful_pointer<PlannerConfig> self,
                               PlannerConfig config) {
  end_process_on_failure(*self);
  self->state = std::move(config);
  return {
      [self](const plans::RequestPlan& request, const PlannerListener& listener) {
        const uint64_t begin_us = to_us(self->clock().now());
        reach(self->state.fail_point, FailPlace::kWhilePlanning);
        plans::PlanReady ready;
        ready.id = request.id;
        ready.answer = plans::answer(*request.question);
        ready.thinking_us = to_us(self->clock().now()) - begin_us;
        self->send(listener, std::move(ready));
      },
  };
}

}  // namespace skein::actors
