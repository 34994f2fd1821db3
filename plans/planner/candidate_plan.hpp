#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "plans/plan/plan.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// Devices that follow one list of actions, and their rows of every micro-batch.
struct CandidateRank {
  std::vector<int32_t> devices;  // Indices into `ClusterSpec::devices`; at least one.
  std::vector<int64_t> rows;     // Parallel to `devices`, each >= 1; they add up to the rows.
  auto operator<=>(const CandidateRank&) const = default;
};

/// What a planner decides, without what follows from it; `plan_of` makes a plan of it.
/// Search works on candidate plans, because they are small and cheap to compare and change.
struct CandidatePlan {
  std::vector<int64_t> cuts;           // [S + 1] first layer of each stage; ends with L.
  std::vector<int32_t> rank_of_stage;  // [S]
  std::vector<CandidateRank> ranks;    // [R]
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int64_t microbatch_rows = 0;
  bool recompute = false;

  int32_t stage_count() const { return static_cast<int32_t>(rank_of_stage.size()); }
  LayerRange layers(int32_t stage) const {
    return {cuts[static_cast<size_t>(stage)], cuts[static_cast<size_t>(stage) + 1]};
  }
  const CandidateRank& rank(int32_t stage) const {
    return ranks[static_cast<size_t>(rank_of_stage[static_cast<size_t>(stage)])];
  }
  auto operator<=>(const CandidatePlan&) const = default;
};

/// One stage per rank, rows as even as possible.
/// `cuts` [S + 1], `devices` [S]: the devices of each stage.
CandidatePlan straight_candidate_plan(std::vector<int64_t> cuts,
                                      std::vector<std::vector<int32_t>> devices,
                                      int64_t microbatch_rows);

/// `rows` over `count` replicas as even as possible, earlier ones get the rest.
std::vector<int64_t> even_row_counts(int64_t rows, int64_t count);

/// The plan of a candidate plan but for its action lists: ids, rows and groups.
Plan listless_plan(const CandidatePlan& candidate, const PlanRequest& request);

/// The candidate plan of a plan.
CandidatePlan candidate_of(const Plan& plan);

/// "1F1B M=32 B=4: 0-5 x3 | 6-11 x1": the shape in one line.
std::string candidate_text(const CandidatePlan& candidate, int64_t global_batch_rows);

}  // namespace skein::plans
