#include "plans/schedule/zero_bubble.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "plans/base/status_macros.hpp"
#include "plans/schedule/early_backward.hpp"
#include "plans/schedule/greedy_schedule.hpp"
#include "plans/schedule/schedule_makespan.hpp"

namespace skein::plans {
namespace {

struct Room {
  int32_t warm_up = 0;    // Forwards in front of the first I.
  int32_t stash_max = 0;  // >= warm_up
};

/// One I and one F in turn; a W as soon as the room is used up, and behind every I once there are
/// no forwards left.
ActionList handcrafted(int32_t stage, const Room& room, int32_t microbatch_count) {
  ActionList actions;
  actions.reserve(3 * static_cast<size_t>(microbatch_count));
  int32_t forwards = 0;
  int32_t weights = 0;
  auto run_weight = [&] { actions.push_back({stage, ActionType::kBackwardWeight, weights++}); };
  while (forwards < room.warm_up) actions.push_back({stage, ActionType::kForward, forwards++});
  for (int32_t m = 0; m < microbatch_count; ++m) {
    actions.push_back({stage, ActionType::kBackwardInput, m});
    if (forwards == microbatch_count) {
      run_weight();
      continue;
    }
    if (forwards - weights == room.stash_max) run_weight();
    actions.push_back({stage, ActionType::kForward, forwards++});
  }
  while (weights < microbatch_count) run_weight();
  return actions;
}

/// As in early_backward.hpp, the warm-up does not grow along the stages.
std::vector<Room> rooms(ZeroBubble variant, const std::vector<int32_t>& stashes,
                        int32_t microbatch_count) {
  const auto S = static_cast<int32_t>(stashes.size());
  const int32_t most = variant == ZeroBubble::kH1 ? S : 2 * S - 1;
  std::vector<Room> all;
  int32_t ahead = microbatch_count;
  for (int32_t s = 0; s < S; ++s) {
    const int32_t wanted = variant == ZeroBubble::kH1 ? S - s : 2 * (S - s) - 1;
    const int32_t stash_max = std::min(stashes[static_cast<size_t>(s)], most);
    ahead = std::min({ahead, wanted, stash_max});
    all.push_back({ahead, stash_max});
  }
  return all;
}

struct Candidate {
  Schedule schedule;
  double makespan_us = 0;
};

/// The shortest of the handcrafted order, list scheduling with the same room, and 1F1B.
absl::StatusOr<Candidate> best_candidate(ZeroBubble variant, const ScheduleShape& shape,
                                         const ScheduleCosts& costs) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> stashes, stash_room(shape, costs));
  const std::vector<Room> all = rooms(variant, stashes, shape.microbatch_count);
  Candidate best;
  best.schedule.resize(all.size());
  ScheduleCosts counted = costs;  // The same limits, in stashes.
  counted.stash_bytes.assign(all.size(), 1);
  for (size_t s = 0; s < all.size(); ++s) {
    const auto rank = static_cast<size_t>(shape.rank_of_stage[s]);
    best.schedule[rank] = handcrafted(static_cast<int32_t>(s), all[s], shape.microbatch_count);
    counted.limit_bytes[rank] = all[s].stash_max;
  }
  best.makespan_us = makespan_us(best.schedule, shape, costs);
  SKEIN_ASSIGN_OR_RETURN(TimedSchedule greedy, greedy_schedule(shape, counted));
  if (greedy.makespan_us < best.makespan_us) {
    best = {std::move(greedy.schedule), greedy.makespan_us};
  }
  SKEIN_ASSIGN_OR_RETURN(Schedule whole, early_backward(WarmUp::kPA, shape, costs));
  const double whole_us = makespan_us(whole, shape, costs);
  if (whole_us < best.makespan_us) best = {std::move(whole), whole_us};
  return best;
}

}  // namespace

absl::StatusOr<Schedule> zero_bubble(ZeroBubble variant, const ScheduleShape& shape,
                                     const ScheduleCosts& costs) {
  SKEIN_ASSIGN_OR_RETURN(Candidate best, best_candidate(variant, shape, costs));
  if (variant == ZeroBubble::kH2) {
    SKEIN_ASSIGN_OR_RETURN(Candidate less, best_candidate(ZeroBubble::kH1, shape, costs));
    if (less.makespan_us < best.makespan_us) best = std::move(less);
  }
  return std::move(best.schedule);
}

}  // namespace skein::plans
