#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/planner/candidate_cost.hpp"
#include "plans/planner/candidate_plan.hpp"
#include "plans/schedule/schedule.hpp"

namespace skein::plans {

/// What the schedule of a candidate plan may count on: its times, transfers, and the room that the
/// devices of the cluster of `model` leave for stashes, per row: the tightest replica of a rank
/// decides.
/// ResourceExhausted   if a device has no room for its stages' state.
absl::StatusOr<ScheduleCosts> schedule_costs(const CandidatePlan& candidate,
                                             const CandidateCost& cost, CostModel& model);

/// Makes the action lists of candidate plans for one request. Not thread-safe: keeps the lists that
/// neither times nor memory shaped, since a search asks for them again and again.
class CandidateSchedules {
 public:
  explicit CandidateSchedules(CostModel& model) : model_(model) {}

  /// InvalidArgument     if the schedule is not made for the candidate plan's shape.
  /// ResourceExhausted   if the candidate plan does not fit its devices.
  absl::StatusOr<std::shared_ptr<const Schedule>> lists(const CandidatePlan& candidate,
                                                        const CandidateCost& cost);

 private:
  struct Free {  // Lists that no limit shaped.
    std::shared_ptr<const Schedule> lists;
    std::vector<int32_t> peaks;  // [S] stashes at once, each stage for itself.
  };
  using Key = std::tuple<ScheduleKind, std::vector<int32_t>, int32_t>;
  absl::StatusOr<Free> unlimited(ScheduleKind kind, const ScheduleShape& shape);

  CostModel& model_;
  std::map<Key, Free> cache_;
  int64_t cached_actions_ = 0;
};

/// The plan of a candidate plan: ids, groups and action lists. Errors as
/// `CandidateSchedules::lists`.
absl::StatusOr<Plan> plan_of(const CandidatePlan& candidate, CostModel& model);

}  // namespace skein::plans
