#include "plans/schedule/early_backward.hpp"

#include <algorithm>

#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

ActionList fixed_warm_up(int32_t stage, int32_t ahead, int32_t microbatch_count) {
  ActionList actions;
  actions.reserve(2 * static_cast<size_t>(microbatch_count));
  for (int32_t m = 0; m < ahead; ++m) actions.push_back({stage, ActionType::kForward, m});
  for (int32_t m = 0; m < microbatch_count; ++m) {
    actions.push_back({stage, ActionType::kBackward, m});
    if (m + ahead < microbatch_count) {
      actions.push_back({stage, ActionType::kForward, m + ahead});
    }
  }
  return actions;
}

int32_t wanted(WarmUp warm_up, int32_t stages_left, int32_t microbatch_count) {
  if (warm_up == WarmUp::kPA) return stages_left;
  return warm_up == WarmUp::kPB ? 2 * stages_left - 1 : microbatch_count;
}

}  // namespace

absl::StatusOr<Schedule> early_backward(WarmUp warm_up, const ScheduleShape& shape,
                                        const ScheduleCosts& costs) {
  const int32_t S = shape.stage_count();
  const int32_t M = shape.microbatch_count;
  SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> room, stash_room(shape, costs));
  Schedule schedule(shape.rank_of_stage.size());
  int32_t ahead = M;
  for (int32_t s = 0; s < S; ++s) {
    const auto stage = static_cast<size_t>(s);
    ahead = std::min(ahead, wanted(warm_up, S - s, M));
    if (warm_up != WarmUp::kAll) ahead = std::min(ahead, room[stage]);
    schedule[static_cast<size_t>(shape.rank_of_stage[stage])] = fixed_warm_up(s, ahead, M);
  }
  return schedule;
}

}  // namespace skein::plans
