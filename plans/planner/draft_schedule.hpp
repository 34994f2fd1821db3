#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/planner/draft_cost.hpp"
#include "plans/planner/plan_draft.hpp"
#include "plans/schedule/schedule.hpp"

namespace skein::plans {

/// What the schedule of a draft may count on: its times, transfers, and the room that the devices
/// of the cluster of `model` leave for stashes, per row: the tightest replica of a rank decides.
/// ResourceExhausted   if a device has no room for its stages' state.
absl::StatusOr<ScheduleCosts> schedule_costs(const PlanDraft& draft, const DraftCost& cost,
                                             CostModel& model);

/// Makes the action lists of drafts for one request. Not thread-safe: keeps the lists that neither
/// times nor memory shaped, since a search asks for them again and again.
class DraftSchedules {
 public:
  explicit DraftSchedules(CostModel& model) : model_(model) {}

  /// InvalidArgument     if the schedule is not made for the draft's shape.
  /// ResourceExhausted   if the draft does not fit its devices.
  absl::StatusOr<std::shared_ptr<const Schedule>> lists(const PlanDraft& draft,
                                                        const DraftCost& cost);

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

/// The plan of a draft: ids, groups and action lists. Errors as `DraftSchedules::lists`.
absl::StatusOr<Plan> plan_of(const PlanDraft& draft, CostModel& model);

}  // namespace skein::plans
