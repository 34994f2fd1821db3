#include "plans/simulator/churn_plans.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/base/units.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/stragglers/speed_watch.hpp"

namespace skein::plans {
namespace {

std::vector<WorkerId> ids_of(const DeviceOfWorker& workers) {
  std::vector<WorkerId> ids;
  for (const auto& [worker, device] : workers) ids.push_back(worker);
  return ids;
}

}  // namespace

ChurnPlans::ChurnPlans(JobSpec job, const Profile& profile, const ClusterSpec& cluster)
    : job_(std::move(job)), profile_(profile), cluster_(cluster) {}

std::vector<MeasuredWorker> ChurnPlans::measured(const DeviceOfWorker& workers) const {
  std::vector<MeasuredWorker> all;
  for (const auto& [worker, device_index] : workers) {
    const ClusterDevice& device = cluster_.devices[static_cast<size_t>(device_index)];
    MeasuredWorker& own = all.emplace_back();
    own.id = worker;
    own.host = absl::StrCat(device.host);
    own.profile = profile_;
    slow_down(own, 1 / device.speed);
    own.profile.device = absl::StrCat("device ", device_index);
    own.memory_bytes = device.memory_bytes;
    own.is_device_memory = true;
    for (const auto& [other, other_device] : workers) {
      if (other == worker) continue;
      own.links[other] = path_speed(cluster_, device_index, other_device);
    }
  }
  return all;
}

ReplanRequest ChurnPlans::request(const DeviceOfWorker& workers) const {
  SKEIN_CHECK(!workers.empty()) << "there is nobody to plan for";
  ReplanRequest request;
  request.job = job_;
  request.workers = ids_of(workers);
  request.measured = measured(workers);
  return request;
}

std::string ChurnPlans::likeness(const DeviceOfWorker& workers) const {
  std::map<int32_t, size_t> hosts;
  std::string text;
  for (const auto& [worker, device_index] : workers) {
    const ClusterDevice& device = cluster_.devices[static_cast<size_t>(device_index)];
    const ClusterHost& host = cluster_.hosts[static_cast<size_t>(device.host)];
    const size_t number = hosts.try_emplace(device.host, hosts.size()).first->second;
    absl::StrAppend(&text, device.speed, " ", device.memory_bytes, " ", number, " ");
    absl::StrAppend(&text, host.inside.bytes_per_second, " ", host.inside.latency_us, " ",
                    host.network.bytes_per_second, " ", host.network.latency_us, ";");
    // A path of their own makes hosts unlike.
    if (!cluster_.links.empty()) absl::StrAppend(&text, device.host);
  }
  return text;
}

absl::StatusOr<Plan> ChurnPlans::best(const ReplanRequest& request, const DeviceOfWorker& workers) {
  if (!is_chosen_by_planner(request)) {
    SKEIN_ASSIGN_OR_RETURN(PlannedPipeline planned, replan(request));
    return std::move(planned.plan);
  }
  const std::string key = likeness(workers);
  auto found = made_.find(key);
  if (found == made_.end()) {
    absl::StatusOr<PlannedPipeline> planned = replan(request);
    found =
        made_
            .emplace(key, planned.ok() ? with_positions(std::move(planned->plan), request.workers)
                                       : planned.status())
            .first;
  }
  SKEIN_RETURN_IF_ERROR(found->second.status());
  return adopt_plan(job_, *found->second, request.workers, request.generation);
}

absl::StatusOr<Plan> ChurnPlans::whole_pipelines(const ReplanRequest& request,
                                                 int64_t stages) const {
  const auto pipelines = static_cast<int64_t>(request.workers.size()) / stages;
  if (pipelines == 0) {
    return absl::UnavailableError(
        absl::StrCat(request.workers.size(), " workers are no pipeline of ", stages, " stages"));
  }
  ReplanRequest asked = request;
  asked.is_urgent = false;
  ParallelismSpec& parallelism = asked.job.parallelism;
  parallelism = {};
  parallelism.pipeline_parallel_degree = stages;
  std::optional<Plan> fastest;
  double fastest_us = std::numeric_limits<double>::infinity();
  absl::Status why = absl::UnavailableError("no micro-batch fits");
  for (const int64_t rows : measured_request(job_, request.measured).microbatch_rows) {
    asked.job.training.micro_batch_size = rows;
    parallelism.data_parallel_replicate_degree = std::min(pipelines, rows);
    const absl::StatusOr<PlannedPipeline> planned = replan(asked);
    const absl::StatusOr<double> step_us =
        planned.ok() ? predict_step_us(job_, planned->plan, request.measured) : planned.status();
    why = step_us.status();
    if (!step_us.ok() || *step_us >= fastest_us) continue;
    fastest = planned->plan;
    fastest_us = *step_us;
  }
  if (!fastest) return why;
  return *std::move(fastest);
}

absl::StatusOr<double> ChurnPlans::step_seconds(const Plan& plan,
                                                const DeviceOfWorker& workers) const {
  SKEIN_ASSIGN_OR_RETURN(const double step_us, predict_step_us(job_, plan, measured(workers)));
  return step_us * kSecondsPerMicrosecond;
}

absl::StatusOr<std::vector<ChurnPlans::Slot>> ChurnPlans::slots(
    const Plan& plan, const DeviceOfWorker& workers) const {
  const std::vector<WorkerId> ids = ids_of(workers);
  const PlanRequest asked = measured_request(job_, measured(workers));
  SimulationOptions options = asked.simulation;
  options.keeps_records = true;
  SKEIN_ASSIGN_OR_RETURN(const Plan positioned, with_positions(plan, ids));
  SKEIN_ASSIGN_OR_RETURN(const Simulation simulation,
                         simulate(positioned, asked.profile, asked.cluster, options));
  std::vector<Slot> all;
  for (const SimulatedWorker& worker : simulation.workers) {
    for (const SimulatedSlot& slot : worker.slots) {
      all.push_back({ids[worker.id.value - 1], slot.start_us * kSecondsPerMicrosecond,
                     slot.end_us * kSecondsPerMicrosecond});
    }
  }
  return all;
}

double ChurnPlans::capacity(const DeviceOfWorker& workers) const {
  const LayerRange all{0, static_cast<int64_t>(profile_.layers.size())};
  double sample_us = std::numeric_limits<double>::infinity();
  for (const int64_t rows : profile_.rows) {
    sample_us = std::min(sample_us,
                         range_times(profile_, all, rows).total_us() / static_cast<double>(rows));
  }
  double speed = 0;
  for (const auto& [worker, device] : workers) {
    speed += cluster_.devices[static_cast<size_t>(device)].speed;
  }
  return speed / sample_us * kMicrosecondsPerSecond;
}

double ChurnPlans::transfer_seconds(int64_t bytes, int32_t from_device, int32_t to_device) const {
  const LinkSpeed path = path_speed(cluster_, from_device, to_device);
  return static_cast<double>(bytes) / path.bytes_per_second;
}

double ChurnPlans::load_seconds(int64_t bytes, int32_t device) const {
  const int32_t host = cluster_.devices[static_cast<size_t>(device)].host;
  return static_cast<double>(bytes) /
         cluster_.hosts[static_cast<size_t>(host)].network.bytes_per_second;
}

int64_t ChurnPlans::state_bytes(int64_t layer) const {
  const auto weights =
      static_cast<double>(profile_.layers[static_cast<size_t>(layer)].parameter_bytes);
  // One share of the state are gradients, which the next step makes anew.
  return std::llround(weights * std::max(1.0, profile_.state_factor - 1));
}

}  // namespace skein::plans
