#include "tests/sim/part_memory.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/model/memory_estimate.hpp"
#include "gpu/profile/measure_profile.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/modes/mode_list.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/profile/estimate.hpp"
#include "plans/schedule/continuous_1f1b.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::sim {
namespace {

/// More than any job of a scenario takes.
constexpr int64_t kMost = 64 << 20;

std::vector<std::string> modes_of(const plans::JobSpec& job) {
  if (plans::trains_by_tokens(job)) return {plans::kTokenMode};
  if (plans::may_run_pipelines(job)) return {plans::kSynchronousMode, plans::kLocalMode};
  return {plans::kSynchronousMode};
}

plans::ReplanRequest request_of(const plans::JobSpec& job, int64_t worker_count, int64_t bytes) {
  const std::vector<int64_t> rows = plans::rows_to_measure(job);
  const auto device = gpu::make_host_device(1);
  plans::MeasuredWorker measured;
  measured.profile =
      plans::estimate_profile(job.model, job.training.seq_len, rows, job.optimizer, 1e7, 1e12);
  measured.memory_bytes = int64_t{1} << 50;
  measured.memory_bytes_max =
      std::max<int64_t>(1, bytes - gpu::working_bytes(job, *device, rows.back()));
  plans::ReplanRequest request;
  request.job = job;
  for (int64_t n = 1; n <= worker_count; ++n) {
    measured.id = plans::WorkerId{static_cast<uint32_t>(n)};
    request.workers.push_back(measured.id);
    request.measured.push_back(measured);
  }
  return request;
}

/// What the part of a worker takes that takes most.
int64_t plan_bytes(const plans::JobSpec& job, const plans::Plan& plan) {
  const int32_t passes = plans::find_mode(plans::training_modes(), plan.mode).passes_of(job);
  const plans::PlanParts parts(plan, {}, {});
  int64_t most = 0;
  for (const plans::WorkerId worker : plans::plan_workers(plan)) {
    most = std::max(most, part_bytes(job, passes, parts.of(worker), worker));
  }
  return most;
}

}  // namespace

int64_t part_bytes(const plans::JobSpec& job, int32_t passes_in_flight, const plans::PlanPart& part,
                   plans::WorkerId worker) {
  const bool is_split = std::any_of(
      part.actions.begin(), part.actions.end(),
      [](const auto& action) { return action.type == plans::ActionType::kBackwardInput; });
  int64_t bytes = 0;
  for (const plans::StagePart& stage : part.stages) {
    for (const plans::ReplicaPlan& replica : stage.replicas) {
      if (replica.worker != worker) continue;
      gpu::StageModelOptions options;
      options.model = job.model;
      options.layers = stage.layers;
      options.optimizer = job.optimizer;
      options.rows = replica.rows.count;
      options.seq_len = job.training.seq_len;
      options.stash_count = plans::stash_peak(part.actions, stage.stage);
      options.recompute = part.recompute;
      if (job.tokens.reproducible) {
        options.exact_summands = job.training.global_batch_size / options.rows;
      }
      if (passes_in_flight > 1) {
        const plans::Continuous1F1B order{
            part.stage_count, static_cast<int32_t>(part.microbatch_count), passes_in_flight};
        options.stash_count = order.stash_peak(stage.stage);
        options.old_versions = order.old_versions(stage.stage);
      }
      const gpu::MemoryEstimate estimate = gpu::estimate_memory(options, {});
      bytes += estimate.total_bytes() + (is_split ? estimate.split_bytes : 0);
    }
  }
  return bytes;
}

int64_t least_device_bytes(const plans::JobSpec& job, int64_t worker_count) {
  int64_t least = 0;
  for (const std::string& name : modes_of(job)) {
    const plans::ModeEntry& mode = plans::find_mode(plans::training_modes(), name);
    for (int64_t bytes = 1 << 16;; bytes += bytes / 10) {
      const plans::ReplanRequest request = request_of(job, worker_count, bytes);
      const auto chosen = mode.make_plan(request);
      const bool may_fit_more = absl::IsResourceExhausted(chosen.status()) && bytes < kMost;
      if (!chosen.ok() && may_fit_more) continue;
      if (!chosen.ok()) return 0;
      const bool is_planned = plans::is_chosen_by_planner(request);
      least = std::max({least, plan_bytes(job, chosen->plan), is_planned ? bytes : 0});
      break;
    }
  }
  return least;
}

}  // namespace skein::sim
