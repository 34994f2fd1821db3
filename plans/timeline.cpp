#include "plans/timeline.hpp"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

/// Times at which outputs are ready at their producer.
struct Outputs {
  std::map<int32_t, double> forward_us;
  std::map<int32_t, double> backward_us;
};

double duration_us(const StageTimes& times, ActionType type) {
  switch (type) {
    case ActionType::kForward:
      return times.forward_us;
    case ActionType::kBackward:
      return times.backward_us;
    case ActionType::kBackwardInput:
    case ActionType::kBackwardWeight:
      return times.backward_us / 2;
  }
  return 0;
}

/// Earliest time at which the input of `action` is at stage `s`, or false if it is not known yet.
bool input_time(const std::vector<Outputs>& outputs, size_t s, const Action& action,
                double transfer_us, double& time_us) {
  time_us = 0;
  const std::map<int32_t, double>* from = nullptr;
  if (action.type == ActionType::kForward && s > 0) from = &outputs[s - 1].forward_us;
  const bool takes_gradient =
      action.type == ActionType::kBackward || action.type == ActionType::kBackwardInput;
  if (takes_gradient && s + 1 < outputs.size()) from = &outputs[s + 1].backward_us;
  if (from == nullptr) return true;
  const auto found = from->find(action.microbatch);
  if (found == from->end()) return false;
  time_us = found->second + transfer_us;
  return true;
}

}  // namespace

double Timeline::bubble() const {
  double busy = 0;
  for (const auto& slots : stages) {
    for (const TimelineSlot& slot : slots) busy += slot.end_us - slot.start_us;
  }
  const double total = makespan_us * static_cast<double>(stages.size());
  return total > 0 ? 1 - busy / total : 0;
}

absl::StatusOr<Timeline> execute_schedule(const std::vector<std::vector<Action>>& stages,
                                          const std::vector<StageTimes>& times,
                                          double transfer_us) {
  if (times.size() != stages.size() || stages.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(stages.size(), " stages need as many times, there are ", times.size()));
  }
  int32_t microbatch_count = 0;
  for (const Action& action : stages.front()) {
    microbatch_count = std::max(microbatch_count, action.microbatch + 1);
  }
  SKEIN_RETURN_IF_ERROR(validate_schedule(stages, microbatch_count));
  Timeline timeline;
  timeline.stages.resize(stages.size());
  std::vector<Outputs> outputs(stages.size());
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      std::vector<TimelineSlot>& slots = timeline.stages[s];
      double input_us = 0;
      while (slots.size() < stages[s].size() &&
             input_time(outputs, s, stages[s][slots.size()], transfer_us, input_us)) {
        const Action& action = stages[s][slots.size()];
        const double start = std::max(input_us, slots.empty() ? 0 : slots.back().end_us);
        const double end = start + duration_us(times[s], action.type);
        slots.push_back({action, start, end});
        if (action.type == ActionType::kForward) outputs[s].forward_us[action.microbatch] = end;
        if (action.type == ActionType::kBackward || action.type == ActionType::kBackwardInput) {
          outputs[s].backward_us[action.microbatch] = end;
        }
        timeline.makespan_us = std::max(timeline.makespan_us, end);
        progress = true;
      }
    }
  }
  return timeline;
}

}  // namespace skein::plans
