#include "plans/planner/equal_devices.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/planner/candidate_schedule.hpp"

namespace skein::plans {
namespace {

/// Such planners know one schedule; they use another one only if it is not allowed.
ScheduleKind only_schedule(const PlanRequest& request) {
  const std::vector<ScheduleKind>& allowed = request.schedules;
  const bool has = std::find(allowed.begin(), allowed.end(), ScheduleKind::k1F1B) != allowed.end();
  return has ? ScheduleKind::k1F1B : allowed.front();
}

/// What the device with the least room lacks, and what would help.
absl::Status explain(const CandidatePlan& candidate, const PlanRequest& request) {
  Plan plan = listless_plan(candidate, request);
  SKEIN_RETURN_IF_ERROR(set_schedule(plan, candidate.schedule));
  SKEIN_RETURN_IF_ERROR(check_memory(plan, request.profile, request.cluster));
  return absl::ResourceExhaustedError("no plan of this kind fits the devices' memory");
}

}  // namespace

EqualDevices::EqualDevices(const PlanRequest& request)
    : request_(request),
      cluster_(equalised(request.cluster)),
      model_(request, cluster_),
      by_host_(devices_by_host(cluster_)),
      speed_(cluster_.devices.front().speed) {}

std::vector<int32_t> EqualDevices::devices() const {
  return free_devices(by_host_, Occupancy(by_host_.size(), 0));
}

CandidatePlan EqualDevices::candidate(std::vector<int64_t> cuts,
                                      std::vector<std::vector<int32_t>> devices,
                                      const Attempt& attempt) const {
  CandidatePlan candidate =
      straight_candidate_plan(std::move(cuts), std::move(devices), attempt.rows);
  candidate.recompute = attempt.recompute;
  candidate.schedule = only_schedule(request_);
  return candidate;
}

bool EqualDevices::has_room(const LayerRange& layers, const std::vector<int32_t>& devices,
                            const Attempt& attempt, int64_t stashes) {
  const LayerSums& sums = model_.sums();
  const int64_t state = sums.state_bytes(layers);
  const int64_t row_bytes = stashes * sums.stash_row_bytes(layers, attempt.recompute) +
                            sums.extra_row_bytes(layers, attempt.recompute);
  const auto count = static_cast<int64_t>(devices.size());
  for (int64_t r = 0; r < count; ++r) {
    const int64_t memory =
        cluster_.devices[static_cast<size_t>(devices[static_cast<size_t>(r)])].memory_bytes;
    const int64_t bytes = state + row_bytes * even_rows(attempt.rows, r, count).count;
    if (memory > 0 && bytes > memory) return false;
  }
  return true;
}

bool EqualDevices::is_possible(const CandidatePlan& candidate, const Attempt& attempt,
                               double objective_us) {
  for (const CandidateRank& rank : candidate.ranks) {
    if (static_cast<int64_t>(rank.devices.size()) > attempt.rows) return false;
  }
  const int64_t S = candidate.stage_count();
  bool fits = true;
  for (int32_t s = 0; s < S && fits; ++s) {
    const bool all = candidate.schedule == ScheduleKind::kGPipe;
    const int64_t stashes =
        std::min(all ? microbatch_count(attempt) : S - s, microbatch_count(attempt));
    fits = has_room(candidate.layers(s), candidate.rank(s).devices, attempt, stashes);
  }
  if (!fits && (!lacks_memory_ || objective_us < lacks_memory_us_)) {
    lacks_memory_ = candidate;
    lacks_memory_us_ = objective_us;
  }
  return fits;
}

DappleStage EqualDevices::dapple_stage(const LayerRange& layers, int64_t devices,
                                       const FlowTimes::Duration& ring, const Attempt& attempt) {
  const LayerTimes times = model_.even_times(layers, attempt.rows, devices, speed_);
  DappleStage stage;
  stage.forward_us = times.forward_us;
  stage.backward_us = times.backward_us() + (attempt.recompute ? times.forward_us : 0);
  if (devices < 2) return stage;
  const double bytes = model_.reduced_bytes(layers);
  stage.reduce_us = bytes * ring.bytes_us + ring.latency_us;
  if (!request_.simulation.bucketed_reduction) return stage;
  // In buckets, what is left behind the backward: the bucket of the stage's first layer, or all of
  // them where the links are the bottleneck from the first bucket on.
  const LayerRange last{layers.end - 1, layers.end};
  const double first_ready_us =
      model_.even_times(last, attempt.rows, devices, speed_).backward_us();
  const double last_bucket_us =
      model_.reduced_bytes({layers.begin, layers.begin + 1}) * ring.bytes_us + ring.latency_us;
  stage.reduce_us = std::max(last_bucket_us, first_ready_us + stage.reduce_us - stage.backward_us);
  return stage;
}

std::vector<DappleStage> EqualDevices::dapple_stages(const CandidatePlan& candidate) {
  const CandidateCost cost = model_.cost(candidate);
  std::vector<DappleStage> stages;
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    if (s > 0) stages.push_back({cost.cuts[s - 1].total_us(), cost.cuts[s - 1].total_us(), 0});
    const StageCost& stage = cost.stages[s];
    stages.push_back({stage.forward_us, stage.backward_us, stage.tail_us});
  }
  return stages;
}

absl::StatusOr<PlannedPipeline> plan_with_equal_devices(const PlanRequest& request,
                                                        const EqualSearch& search) {
  SKEIN_RETURN_IF_ERROR(validate(request));
  return plan_with_equal_devices(request, request.microbatch_rows.front(), search);
}

absl::StatusOr<PlannedPipeline> plan_with_equal_devices(const PlanRequest& request, int64_t rows,
                                                        const EqualSearch& search) {
  SKEIN_RETURN_IF_ERROR(validate(request));
  EqualDevices ground(request);
  for (const bool recompute : {false, true}) {
    if (recompute && !request.may_recompute) break;
    SKEIN_ASSIGN_OR_RETURN(const std::optional<Found> found, search(ground, {rows, recompute}));
    if (!found) continue;
    CostModel real(request, request.cluster);
    absl::StatusOr<Plan> plan = plan_of(found->candidate, real);
    if (!plan.ok()) continue;
    return PlannedPipeline{*std::move(plan), found->objective_us, found->reason};
  }
  if (ground.lacks_memory()) return explain(*ground.lacks_memory(), request);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no plan of this kind for ", request.profile.layers.size(), " layers on ",
      request.cluster.devices.size(), " devices with micro-batches of ", rows,
      " rows: every replica needs a row and every stage a layer; use more rows or fewer devices"));
}

}  // namespace skein::plans
