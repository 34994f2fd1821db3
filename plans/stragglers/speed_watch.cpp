#include "plans/stragglers/speed_watch.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/pipelines_planner.hpp"
#include "plans/tokens/token_planner.hpp"

namespace skein::plans {
namespace {

/// Pause of a change of plan without the bytes that travel.
// measured, four workers on two virtual cores, Nov 2026
constexpr double kChangeUs = 150'000;
/// Fewer steps say little of stalls.
constexpr size_t kStallsFrom = 16;

absl::StatusOr<Simulation> simulate_measured(const JobSpec& job, const Plan& plan,
                                             const std::vector<MeasuredWorker>& measured) {
  if (measured.empty()) return absl::NotFoundError("no worker has measured its device");
  SKEIN_ASSIGN_OR_RETURN(const Plan positioned, with_positions(plan, ids_of(measured)));
  const PlanRequest request = measured_request(job, measured);
  return simulate(positioned, request.profile, request.cluster, request.simulation);
}

/// By workers' positions among the measured.
absl::StatusOr<std::map<WorkerId, double>> simulate_busy_us(
    const JobSpec& job, const Plan& plan, const std::vector<MeasuredWorker>& measured) {
  if (plan.mode == kLocalMode && !measured.empty()) {
    SKEIN_ASSIGN_OR_RETURN(const Plan positioned, with_positions(plan, ids_of(measured)));
    return predict_busy_us(job, positioned, measured_request(job, measured));
  }
  SKEIN_ASSIGN_OR_RETURN(const Simulation simulated, simulate_measured(job, plan, measured));
  std::map<WorkerId, double> busy_us;
  for (const SimulatedWorker& worker : simulated.workers) busy_us[worker.id] = worker.busy_us;
  return busy_us;
}

/// What a worker computes in a step by the layers' FLOPs; in no unit, only ratios count.
std::map<WorkerId, double> work_by_flops(const JobSpec& job, const Plan& plan) {
  std::map<WorkerId, double> work;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      for (int64_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
        work[replica.worker] +=
            layer_flops(job.model, layer, replica.rows.count, job.training.seq_len).total();
      }
    }
  }
  return work;
}

}  // namespace

SpeedWatch::SpeedWatch(bool is_measured)
    : detector_([&] {
        StragglerDetector::Options options;
        options.knows_unit = is_measured;
        return options;
      }()) {}

void SpeedWatch::begin_generation(const Plan& plan) {
  plan_ = plan;
  expected_us_.clear();
  detector_.reset();
  forget_steps();
  recent_.seen = 0;
}

void SpeedWatch::expect(std::map<WorkerId, double> busy_us) {
  expected_us_ = std::move(busy_us);
  detector_.reset();
  forget_steps();
}

std::vector<StepRatios> SpeedWatch::stalls() const {
  return recent_.last.size() < kStallsFrom ? stalls_ : stalls_of(recent_.last);
}

void SpeedWatch::forget_steps() {
  stalls_ = stalls();
  recent_.last.clear();
}

void SpeedWatch::keep(const std::map<WorkerId, WorkSample>& samples) {
  StepRatios ratios;
  for (const auto& [worker, sample] : samples) {
    if (sample.busy_us > 0 && sample.expected_us > 0) {
      ratios[worker] = sample.busy_us / sample.expected_us;
    }
  }
  if (ratios.empty()) return;
  ++recent_.seen;
  recent_.last.push_back(std::move(ratios));
  if (recent_.last.size() > RecentSteps::kKept) recent_.last.pop_front();
}

std::map<WorkerId, double> expected_busy_us(const JobSpec& job, const Plan& plan,
                                            const std::vector<MeasuredWorker>& measured) {
  if (plan.mode == kTokenMode) {
    const auto predicted = predict_tokens(job, plan, measured);
    return predicted.ok() ? predicted->busy_us : work_by_flops(job, plan);
  }
  const auto simulated = simulate_busy_us(job, plan, measured);
  if (!simulated.ok()) return work_by_flops(job, plan);
  std::map<WorkerId, double> expected;
  for (const auto& [position, busy_us] : *simulated) {
    expected[measured[position.value - 1].id] = busy_us;
  }
  return expected;
}

std::vector<SpeedChange> SpeedWatch::on_step(uint64_t step,
                                             const std::map<ReplicaId, uint64_t>& busy_us) {
  if (!plan_ || expected_us_.empty()) return {};
  std::map<WorkerId, WorkSample> samples;
  for (const auto& [replica, own_us] : busy_us) {
    const WorkerId worker = replica_of(*plan_, replica).worker;
    samples[worker].busy_us += static_cast<double>(own_us);
    samples[worker].expected_us = expected_us_[worker];
  }
  keep(samples);
  return detector_.on_step(step, samples);
}

void slow_down(MeasuredWorker& worker, double slowdown) {
  for (LayerProfile& layer : worker.profile.layers) {
    for (LayerTimes& times : layer.at) {
      times.forward_us *= slowdown;
      times.backward_input_us *= slowdown;
      times.backward_weight_us *= slowdown;
    }
  }
  worker.profile.update_us_per_byte *= slowdown;
}

absl::StatusOr<Mitigation> choose_mitigation(const JobSpec& job, const Plan& current,
                                             const std::vector<MeasuredWorker>& measured,
                                             const std::vector<WorkerId>& stragglers,
                                             uint64_t steps_left, uint64_t generation) {
  const std::vector<WorkerId> ids = ids_of(measured);
  SKEIN_ASSIGN_OR_RETURN(const Plan positioned, with_positions(current, ids));
  PlanRequest request = measured_request(job, measured);
  request.generation = generation;
  MitigationOptions options;
  options.steps_left = steps_left;
  options.move.fixed_us = kChangeUs;
  for (WorkerId straggler : stragglers) {
    const auto found = std::find(ids.begin(), ids.end(), straggler);
    if (found == ids.end()) continue;
    options.stragglers.push_back(WorkerId{static_cast<uint32_t>(found - ids.begin()) + 1});
  }
  SKEIN_ASSIGN_OR_RETURN(Mitigation mitigation, choose_mitigation(positioned, request, options));
  mitigation.plan = with_workers(std::move(mitigation.plan), ids);
  return mitigation;
}

absl::StatusOr<double> predict_step_us(const JobSpec& job, const Plan& plan,
                                       const std::vector<MeasuredWorker>& measured) {
  if (plan.mode == kTokenMode) {
    SKEIN_ASSIGN_OR_RETURN(const TokenPrediction predicted, predict_tokens(job, plan, measured));
    return predicted.step_us;
  }
  SKEIN_ASSIGN_OR_RETURN(const Simulation simulated, simulate_measured(job, plan, measured));
  return simulated.step_us;
}

}  // namespace skein::plans
