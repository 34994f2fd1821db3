#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/plan/plan_ranks.hpp"
#include "plans/planner/candidate_plan.hpp"
#include "plans/planner/layer_sums.hpp"
#include "plans/planner/plan_memory.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {
namespace {

constexpr const char* kRowsKey = " rows (training.micro_batch_size)";

/// What the memory of a plan is checked with.
struct Room {
  const Profile& profile;
  const ClusterSpec& cluster;
  int64_t claims_in_flight = 1;
};

bool fits(const Plan& plan, const Room& room) {
  return lacking_bytes(plan, room.profile, room.cluster, room.claims_in_flight) <= 0;
}

/// The same stages with micro-batches of `rows` rows. Empty if a replica would have none, or the
/// schedule cannot be made anew.
std::optional<Plan> with_rows(const Plan& plan, int64_t rows) {
  Plan changed = plan;
  changed.microbatch_rows = rows;
  changed.microbatch_count = plan.microbatch_count * plan.microbatch_rows / rows;
  for (StagePlan& stage : changed.stages) {
    const auto count = static_cast<int64_t>(stage.replicas.size());
    if (count > rows) return std::nullopt;
    for (int64_t r = 0; r < count; ++r) {
      stage.replicas[static_cast<size_t>(r)].rows = even_rows(rows, r, count);
    }
  }
  if (!set_schedule(changed, plan.schedule).ok()) return std::nullopt;
  return changed;
}

/// The largest smaller number of rows that fits; 0: none.
int64_t fitting_rows(const Plan& plan, const Room& room) {
  for (int64_t rows = plan.microbatch_rows - 1; rows >= 1; --rows) {
    if (plan.microbatch_rows % rows != 0) continue;
    const std::optional<Plan> changed = with_rows(plan, rows);
    if (changed && fits(*changed, room)) return rows;
  }
  return 0;
}

/// Cuts for stages of one device each under 1F1B: from the last stage to the first, each takes as
/// many layers as it has memory for. Empty if that is not enough.
std::vector<int64_t> filled_cuts(const LayerSums& sums, const Plan& plan,
                                 const std::vector<int64_t>& memory) {
  const auto stage_count = static_cast<int64_t>(memory.size());
  std::vector<int64_t> cuts(memory.size() + 1, 0);
  cuts.back() = sums.layer_count();
  for (int64_t s = stage_count - 1; s >= 0; --s) {
    const int64_t end = cuts[static_cast<size_t>(s) + 1];
    const int64_t stashes = std::min(plan.microbatch_count, stage_count - s);
    int64_t begin = end;
    while (begin > s) {  // A layer must be left for each stage in front.
      const LayerRange more{begin - 1, end};
      const int64_t row_bytes = stashes * sums.stash_row_bytes(more, plan.recompute) +
                                sums.extra_row_bytes(more, plan.recompute);
      const int64_t bytes = sums.state_bytes(more) + row_bytes * plan.microbatch_rows;
      if (bytes > memory[static_cast<size_t>(s)]) break;
      --begin;
    }
    if (begin == end) return {};
    cuts[static_cast<size_t>(s)] = begin;
  }
  if (cuts.front() != 0) return {};
  return cuts;
}

/// The smallest number of stages above the plan's, one device each, largest memory first, that
/// fits; 0: none.
int64_t fitting_stages(const Plan& plan, const Room& room) {
  const Profile& profile = room.profile;
  const ClusterSpec& cluster = room.cluster;
  std::vector<int32_t> order(cluster.devices.size());
  std::iota(order.begin(), order.end(), 0);
  auto bytes_of = [&](int32_t device) {  // Unlimited devices have the most.
    const int64_t bytes = cluster.devices[static_cast<size_t>(device)].memory_bytes;
    return bytes == 0 ? std::numeric_limits<int64_t>::max() : bytes;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return bytes_of(a) > bytes_of(b); });
  LayerSums sums(profile);
  const size_t stages_max = std::min(order.size(), profile.layers.size());
  for (size_t stages = plan.stages.size() + 1; stages <= stages_max; ++stages) {
    std::vector<std::vector<int32_t>> devices;
    std::vector<int64_t> memory;
    for (size_t s = 0; s < stages; ++s) {
      devices.push_back({order[s]});
      memory.push_back(bytes_of(order[s]));
    }
    CandidatePlan candidate =
        straight_candidate_plan(filled_cuts(sums, plan, memory), devices, plan.microbatch_rows);
    if (candidate.cuts.empty()) continue;
    candidate.recompute = plan.recompute;
    PlanRequest request;
    request.profile.tied_bytes = profile.tied_bytes;
    request.global_batch_rows = plan.microbatch_rows * plan.microbatch_count;
    Plan changed = listless_plan(candidate, request);
    if (set_schedule(changed, ScheduleKind::k1F1B).ok() && fits(changed, room)) {
      return static_cast<int64_t>(stages);
    }
  }
  return 0;
}

/// What would make the plan fit; only what was tried and does.
std::vector<std::string> mitigations(const Plan& plan, const Room& room) {
  std::vector<std::string> mitigations;
  Plan changed = plan;
  changed.recompute = true;
  if (!plan.recompute && fits(changed, room)) mitigations.push_back("recomputation");
  changed = plan;
  if (plan.schedule != ScheduleKind::k1F1B && set_schedule(changed, ScheduleKind::k1F1B).ok() &&
      fits(changed, room)) {
    mitigations.push_back("the schedule 1F1B");
  }
  if (const int64_t rows = fitting_rows(plan, room); rows > 0) {
    mitigations.push_back(absl::StrCat("micro-batches of ", rows, kRowsKey));
  }
  if (const int64_t stages = fitting_stages(plan, room); stages > 0) {
    mitigations.push_back(absl::StrCat(stages, " stages of one device"));
  }
  if (!mitigations.empty() || plan.recompute) return mitigations;
  changed = plan;
  changed.recompute = true;
  if (const int64_t rows = fitting_rows(changed, room); rows > 0) {
    mitigations.push_back(absl::StrCat("recomputation and micro-batches of ", rows, kRowsKey));
  }
  if (const int64_t stages = fitting_stages(changed, room); stages > 0) {
    mitigations.push_back(absl::StrCat("recomputation and ", stages, " stages of one device"));
  }
  return mitigations;
}

}  // namespace

absl::Status check_memory(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
                          int64_t claims_in_flight) {
  const WorkerMemory* worst = nullptr;
  int64_t lacking = 0;
  const std::vector<WorkerMemory> memories = plan_memory(plan, profile, claims_in_flight);
  for (const WorkerMemory& memory : memories) {
    const size_t device = memory.worker.value - 1;
    if (memory.worker.value == 0 || device >= cluster.devices.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan has worker ", memory.worker.value, " but the cluster has ",
                       cluster.devices.size(), " devices; plan for this cluster"));
    }
    const int64_t limit = cluster.devices[device].memory_bytes;
    if (limit == 0 || memory.total_bytes() - limit <= lacking) continue;
    lacking = memory.total_bytes() - limit;
    worst = &memory;
  }
  if (worst == nullptr) return absl::OkStatus();
  const ClusterDevice& device = cluster.devices[worst->worker.value - 1];
  const std::vector<std::string> ways = mitigations(plan, {profile, cluster, claims_in_flight});
  return absl::ResourceExhaustedError(absl::StrCat(
      device.name, " lacks ", lacking, " bytes: it needs ", worst->state_bytes,
      " for weights, gradients and optimizer, ", worst->stash_bytes, " for stashes",
      worst->extra_bytes > 0 ? ", " : "",
      worst->extra_bytes > 0 ? absl::StrCat(worst->extra_bytes, " to recompute a layer") : "",
      worst->version_bytes > 0
          ? absl::StrCat(", ", worst->version_bytes, " for older versions of weights")
          : "",
      ", and has ", device.memory_bytes, group_note(device), "; ",
      ways.empty() ? "neither recomputation, nor fewer rows, nor more stages make it fit: use more "
                     "devices, or devices with more memory"
                   : absl::StrCat(absl::StrJoin(ways, " or "), " would make it fit")));
}

}  // namespace skein::plans
