#include "actors/stage.hpp"

#include <utility>

namespace skein::actors {

Stage::behavior_type stage(Stage::stateful_pointer<StageState> self,
                           std::shared_ptr<plans::GroupScheduler> policy, uint64_t generation,
                           StageListener listener) {
  self->state.policy = std::move(policy);
  self->state.generation = generation;
  self->state.listener = std::move(listener);
  return {
      [self](const plans::ReadySignal& signal) {
        for (plans::GroupStartDecision& decision : self->state.policy->on_ready(signal)) {
          decision.generation = self->state.generation;
          self->send(self->state.listener, std::move(decision));
        }
      },
  };
}

}  // namespace skein::actors
