#include "actors/coordinator/grouping.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/end_process.hpp"
#include "actors/microseconds.hpp"

namespace skein::actors {

Grouping::behavior_type grouping(Grouping::stateful_pointer<GroupingState> self,
                                 std::shared_ptr<plans::GroupScheduler> policy, uint64_t generation,
                                 GroupingListener listener) {
  end_process_on_failure(*self);
  GroupingState& state = self->state;
  state.self = self;
  state.policy = std::move(policy);
  state.generation = generation;
  state.listener = std::move(listener);
  return {
      [&state](const plans::ReadySignal& signal) {
        state.apply(state.policy->on_ready(signal, state.now_us()));
      },
      [&state](const plans::GroupOutcome& outcome) {
        state.apply(state.policy->on_group_end(outcome, state.now_us()));
      },
      [&state](const plans::MembershipChange& change) {
        state.apply(state.policy->on_membership(change, state.now_us()));
      },
      [&state](TickAtom) { state.on_tick(); },
  };
}

uint64_t GroupingState::now_us() const { return to_us(self->clock().now()); }

void GroupingState::apply(plans::GroupDecisions decisions) {
  for (plans::GroupStart& start : decisions.starts) {
    self->send(listener, GroupStarted{generation, std::move(start)});
  }
  if (decisions.wake_us == wake_us) return;
  wake_us = decisions.wake_us;
  if (!wake_us) return;
  const uint64_t now = now_us();
  const uint64_t wait_us = *wake_us > now ? *wake_us - now : 0;
  self->delayed_send(self, std::chrono::microseconds(wait_us), TickAtom::value);
}

void GroupingState::on_tick() {
  const uint64_t now = now_us();
  if (!wake_us || now < *wake_us) return;  // Of a wish that was replaced.
  wake_us.reset();
  apply(policy->on_timer(now));
}

}  // namespace skein::actors
