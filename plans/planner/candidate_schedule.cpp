#include "plans/planner/candidate_schedule.hpp"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

/// Lists kept for reuse hold at most so many actions, 12 bytes each: bounded by 50 MB.
constexpr int64_t kCachedActionsMax = 4'000'000;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// Kinds whose order follows from the shape alone while memory suffices.
bool ignores_times(ScheduleKind kind) {
  return kind == ScheduleKind::kGPipe || kind == ScheduleKind::k1F1B ||
         kind == ScheduleKind::k1F1BPB || kind == ScheduleKind::kInterleaved1F1B;
}

ScheduleShape shape_of(const CandidatePlan& candidate, const PlanRequest& request) {
  ScheduleShape shape;
  shape.rank_of_stage = candidate.rank_of_stage;
  shape.microbatch_count =
      static_cast<int32_t>(request.global_batch_rows / candidate.microbatch_rows);
  return shape;
}

/// Bytes of state and of the layer that is computed again, on every replica of a rank.
struct RankNeed {
  int64_t state_bytes = 0;
  int64_t extra_row_bytes = 0;
};

absl::StatusOr<int64_t> room_per_row(const CandidateRank& rank, const RankNeed& need,
                                     const ClusterSpec& cluster) {
  int64_t room = kUnlimited;
  for (size_t r = 0; r < rank.devices.size(); ++r) {
    const ClusterDevice& device = cluster.devices[static_cast<size_t>(rank.devices[r])];
    if (device.memory_bytes == 0) continue;
    const int64_t left =
        device.memory_bytes - need.state_bytes - need.extra_row_bytes * rank.rows[r];
    if (left < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat(device.name, " lacks ", -left, " bytes for the weights, gradients and ",
                       "optimizer state of its stages alone", group_note(device),
                       "; use more stages or more memory"));
    }
    room = std::min(room, left / rank.rows[r]);
  }
  return room;
}

std::vector<RankNeed> needs(const CandidatePlan& candidate, CostModel& model) {
  std::vector<RankNeed> needs(candidate.ranks.size());
  for (int32_t s = 0; s < candidate.stage_count(); ++s) {
    RankNeed& need = needs[static_cast<size_t>(candidate.rank_of_stage[static_cast<size_t>(s)])];
    need.state_bytes += model.sums().state_bytes(candidate.layers(s));
    need.extra_row_bytes =
        std::max(need.extra_row_bytes,
                 model.sums().extra_row_bytes(candidate.layers(s), candidate.recompute));
  }
  return needs;
}

}  // namespace

absl::StatusOr<ScheduleCosts> schedule_costs(const CandidatePlan& candidate,
                                             const CandidateCost& cost, CostModel& model) {
  ScheduleCosts costs;
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    const StageCost& stage = cost.stages[s];
    costs.stage_times.push_back({stage.forward_us, stage.input_us, stage.weight_us});
    if (s > 0) costs.transfer_us.push_back(cost.cuts[s - 1].total_us());
    costs.stash_bytes.push_back(model.sums().stash_row_bytes(
        candidate.layers(static_cast<int32_t>(s)), candidate.recompute));
  }
  const std::vector<RankNeed> rank_needs = needs(candidate, model);
  for (size_t rank = 0; rank < candidate.ranks.size(); ++rank) {
    SKEIN_ASSIGN_OR_RETURN(const int64_t room,
                           room_per_row(candidate.ranks[rank], rank_needs[rank], model.cluster()));
    costs.limit_bytes.push_back(room);
  }
  return costs;
}

absl::StatusOr<CandidateSchedules::Free> CandidateSchedules::unlimited(ScheduleKind kind,
                                                                       const ScheduleShape& shape) {
  const Key key{kind, shape.rank_of_stage, shape.microbatch_count};
  if (const auto known = cache_.find(key); known != cache_.end()) return known->second;
  SKEIN_ASSIGN_OR_RETURN(Schedule made, make_schedule(kind, shape));
  Free free;
  const int32_t stages = shape.stage_count();
  for (int32_t s = 0; s < stages; ++s) {
    const auto rank = static_cast<size_t>(shape.rank_of_stage[static_cast<size_t>(s)]);
    free.peaks.push_back(stash_peak(made[rank], s));
  }
  free.lists = std::make_shared<const Schedule>(std::move(made));
  const int64_t actions = int64_t{2} * stages * shape.microbatch_count;
  if (cached_actions_ + actions > kCachedActionsMax) {
    cache_.clear();
    cached_actions_ = 0;
  }
  cached_actions_ += actions;
  cache_.emplace(key, free);
  return free;
}

absl::StatusOr<std::shared_ptr<const Schedule>> CandidateSchedules::lists(
    const CandidatePlan& candidate, const CandidateCost& cost) {
  const ScheduleShape shape = shape_of(candidate, model_.request());
  SKEIN_ASSIGN_OR_RETURN(const ScheduleCosts costs, schedule_costs(candidate, cost, model_));
  if (ignores_times(candidate.schedule)) {
    SKEIN_ASSIGN_OR_RETURN(const Free free, unlimited(candidate.schedule, shape));
    std::vector<int64_t> wanted(candidate.ranks.size(), 0);
    bool fits = true;
    for (size_t s = 0; s < free.peaks.size(); ++s) {
      int64_t& bytes = wanted[static_cast<size_t>(shape.rank_of_stage[s])];
      bytes += free.peaks[s] * costs.stash_bytes[s];
      fits = fits && bytes <= costs.limit_bytes[static_cast<size_t>(shape.rank_of_stage[s])];
    }
    if (fits) return free.lists;
  }
  SKEIN_ASSIGN_OR_RETURN(Schedule made, make_schedule(candidate.schedule, shape, costs));
  return std::make_shared<const Schedule>(std::move(made));
}

absl::StatusOr<Plan> plan_of(const CandidatePlan& candidate, CostModel& model) {
  Plan plan = listless_plan(candidate, model.request());
  CandidateSchedules schedules(model);
  SKEIN_ASSIGN_OR_RETURN(const std::shared_ptr<const Schedule> lists,
                         schedules.lists(candidate, model.cost(candidate)));
  plan.actions = *lists;
  return plan;
}

}  // namespace skein::plans
