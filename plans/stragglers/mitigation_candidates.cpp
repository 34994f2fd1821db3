#include "plans/stragglers/mitigation_candidates.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "plans/elastic/keep_layers.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/candidate_schedule.hpp"
#include "plans/planner/candidate_timing.hpp"
#include "plans/planner/local_search.hpp"
#include "plans/planner/plan_memory.hpp"
#include "plans/planner/row_split.hpp"
#include "plans/planner/skein_planner.hpp"
#include "plans/planner/stage_groups.hpp"

namespace skein::plans {
namespace {

/// What one local search may do, as `CandidateTiming::work` counts: about 10 ns each, so 50 ms.
constexpr int64_t kSearchWork = 5'000'000;

bool is_straggler(const std::vector<WorkerId>& stragglers, WorkerId worker) {
  return std::find(stragglers.begin(), stragglers.end(), worker) != stragglers.end();
}

WorkerId worker_of(int32_t device) { return WorkerId{static_cast<uint32_t>(device) + 1}; }

/// What a search may change.
struct Freedom {
  bool cuts = false;  // Rows always, and those of a micro-batch as the request allows.
};

bool is_allowed(const CandidatePlan& from, const CandidatePlan& to, Freedom freedom) {
  if (to.schedule != from.schedule || to.recompute != from.recompute ||
      to.rank_of_stage != from.rank_of_stage) {
    return false;
  }
  if (!freedom.cuts && to.cuts != from.cuts) return false;
  return std::equal(
      from.ranks.begin(), from.ranks.end(), to.ranks.begin(), to.ranks.end(),
      [](const CandidateRank& a, const CandidateRank& b) { return a.devices == b.devices; });
}

class Nearby {
 public:
  Nearby(const Plan& current, const PlanRequest& request)
      : current_(current), request_(request), model_(request, request.cluster), timing_(model_) {}

  std::vector<MitigationCandidate> run(const std::vector<WorkerId>& stragglers) {
    CandidatePlan candidate = candidate_of(current_);
    split_rows_of(candidate);
    add_variants(candidate, "");
    std::optional<CandidatePlan> fewer = without(candidate_of(current_), stragglers);
    if (fewer) add_variants(*fewer, "without the stragglers, ");
    return std::move(candidates_);
  }

 private:
  static bool can_split(const CandidatePlan& candidate) {
    return std::all_of(
        candidate.ranks.begin(), candidate.ranks.end(), [&](const CandidateRank& rank) {
          return static_cast<int64_t>(rank.devices.size()) <= candidate.microbatch_rows;
        });
  }

  void split_rows_of(CandidatePlan& candidate) {
    for (CandidateRank& rank : candidate.ranks) {
      rank.rows = split_rows(model_, rank.devices, candidate.microbatch_rows);
    }
  }

  /// The candidate plan on the other devices; nothing if there are no stragglers in it, or nobody
  /// else.
  std::optional<CandidatePlan> without(CandidatePlan candidate,
                                       const std::vector<WorkerId>& stragglers) {
    bool is_other = false;
    for (CandidateRank& rank : candidate.ranks) {
      const size_t erased = std::erase_if(rank.devices, [&](int32_t device) {
        return is_straggler(stragglers, worker_of(device));
      });
      is_other = is_other || erased > 0;
    }
    if (!is_other || !close_gaps(candidate)) return std::nullopt;
    split_rows_of(candidate);
    return candidate;
  }

  /// Takes ranks without devices out; their layers go to the others by speed.
  bool close_gaps(CandidatePlan& candidate) {
    std::vector<int32_t> new_rank;
    int32_t next = 0;
    for (const CandidateRank& rank : candidate.ranks) {
      new_rank.push_back(rank.devices.empty() ? -1 : next++);
    }
    if (next == 0) return false;
    if (static_cast<size_t>(next) == candidate.ranks.size()) return true;
    std::vector<int32_t> rank_of_stage;
    for (const int32_t rank : candidate.rank_of_stage) {
      if (new_rank[static_cast<size_t>(rank)] >= 0) {
        rank_of_stage.push_back(new_rank[static_cast<size_t>(rank)]);
      }
    }
    candidate.rank_of_stage = std::move(rank_of_stage);
    std::erase_if(candidate.ranks, [](const CandidateRank& rank) { return rank.devices.empty(); });
    split_rows_of(candidate);
    rebalance(model_, candidate);
    return !candidate.cuts.empty();
  }

  /// The candidate plan, with other micro-batches, and the best of its neighbours with the same
  /// cuts, and with others.
  void add_variants(const CandidatePlan& candidate, const std::string& origin) {
    for (const int64_t rows : request_.microbatch_rows) {
      CandidatePlan changed = candidate;
      changed.microbatch_rows = rows;
      if (can_split(changed)) {
        split_rows_of(changed);
        add(changed, origin + "other micro-batches");
      }
    }
    add(candidate, origin + "rows by speed");
    add(improved(candidate, {.cuts = false}), origin + "rows searched");
    CandidatePlan balanced = candidate;
    rebalance(model_, balanced);
    if (!balanced.cuts.empty()) add(balanced, origin + "cuts by speed");
    add(improved(balanced.cuts.empty() ? candidate : balanced, {.cuts = true}),
        origin + "cuts searched");
    // A search that starts from the cuts in force moves fewer layers.
    add(improved(candidate, {.cuts = true}), origin + "cuts shifted");
  }

  CandidatePlan improved(const CandidatePlan& start, Freedom freedom) {
    const int64_t limit = timing_.work() + kSearchWork;
    const CandidateMeasure measure = [&](const CandidatePlan& candidate, double cutoff_us) {
      constexpr double kNever = std::numeric_limits<double>::infinity();
      if (!is_allowed(start, candidate, freedom)) return kNever;
      return timing_.step_us_below(candidate, cutoff_us).value_or(kNever);
    };
    const double start_us = measure(start, std::numeric_limits<double>::infinity());
    return local_search(model_, {start, start_us}, measure, [&] { return timing_.work() < limit; })
        .candidate;
  }

  void add(const CandidatePlan& candidate, const std::string& origin) {
    std::optional<Plan> plan = finished(candidate);
    if (!plan || lacking_bytes(*plan, request_.profile, request_.cluster) > 0) return;
    if (candidate == candidate_of(current_)) return;
    for (const MitigationCandidate& known : candidates_) {
      if (known.plan == *plan) return;
    }
    candidates_.push_back({*std::move(plan), origin});
  }

  std::optional<Plan> finished(const CandidatePlan& candidate) {
    if (candidate.schedule != ScheduleKind::kCustom) {
      absl::StatusOr<Plan> plan = plan_of(candidate, model_);
      return plan.ok() ? std::optional<Plan>(*std::move(plan)) : std::nullopt;
    }
    // Lists written by hand stay good as long as the ranks hold the same stages.
    if (candidate.rank_of_stage != candidate_of(current_).rank_of_stage ||
        candidate.microbatch_rows != current_.microbatch_rows) {
      return std::nullopt;
    }
    Plan plan = listless_plan(candidate, request_);
    plan.actions = current_.actions;
    return plan;
  }

  const Plan& current_;
  const PlanRequest& request_;
  CostModel model_;
  CandidateTiming timing_;
  std::vector<MitigationCandidate> candidates_;
};

/// A plan for the request's devices without those of `stragglers`, in the numbers of all devices.
std::optional<Plan> planned_without(const PlanRequest& request,
                                    const std::vector<WorkerId>& stragglers) {
  PlanRequest fewer = request;
  fewer.simulation.scenario = {};  // It speaks of devices by their old numbers.
  fewer.cluster.devices.clear();
  std::vector<WorkerId> old_worker;
  for (size_t d = 0; d < request.cluster.devices.size(); ++d) {
    const WorkerId worker = worker_of(static_cast<int32_t>(d));
    if (is_straggler(stragglers, worker)) continue;
    fewer.cluster.devices.push_back(request.cluster.devices[d]);
    old_worker.push_back(worker);
  }
  if (old_worker.empty() || old_worker.size() == request.cluster.devices.size()) return {};
  absl::StatusOr<PlannedPipeline> made = plan_skein(fewer);
  if (!made.ok()) return std::nullopt;
  return with_workers(std::move(made->plan), old_worker);
}

}  // namespace

std::vector<MitigationCandidate> nearby_plans(const Plan& current, const PlanRequest& request,
                                              const std::vector<WorkerId>& stragglers) {
  PlanRequest same = request;
  same.schedules = {current.schedule};
  same.may_recompute = current.recompute;
  return Nearby(current, same).run(stragglers);
}

std::vector<MitigationCandidate> replanned(const Plan& current, const PlanRequest& request,
                                           const std::vector<WorkerId>& stragglers) {
  std::vector<MitigationCandidate> plans;
  auto add = [&](Plan plan, const std::string& origin) {
    Plan kept = with_layers_kept(plan, current, request.profile, request.cluster);
    if (kept != plan) plans.push_back({std::move(kept), origin + ", layers kept"});
    plans.push_back({std::move(plan), origin});
  };
  absl::StatusOr<PlannedPipeline> all = plan_skein(request);
  if (all.ok()) add(std::move(all->plan), "planned anew");
  std::optional<Plan> fewer = planned_without(request, stragglers);
  if (fewer) add(*std::move(fewer), "planned anew without the stragglers");
  return plans;
}

}  // namespace skein::plans
