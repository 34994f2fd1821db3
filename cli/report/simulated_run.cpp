#include "cli/report/simulated_run.hpp"

#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/schedule/action.hpp"

namespace skein::cli {
namespace {

constexpr uint8_t kComputeTrack = 0;
constexpr uint8_t kSendTrack = 1;
constexpr uint8_t kReceiveTrack = 2;
constexpr uint8_t kReductionTrack = 3;

actors::SliceReport slice(std::string name, uint8_t track, double start_us, double end_us,
                          int32_t microbatch) {
  const auto start = static_cast<uint64_t>(std::llround(start_us));
  const auto end = static_cast<uint64_t>(std::llround(end_us));
  return {std::move(name), track, start, end - start, microbatch};
}

/// What the layers of the plan are: a profile may be of another model than the job's.
std::string layers_of(const plans::JobSpec& job, const plans::Plan& plan) {
  const int64_t count = plan.stages.back().layers.end;
  return count == plans::layer_count(job.model) ? plans::layers_text(job.model)
                                                : absl::StrCat(count, " layers");
}

void tell_workers(const plans::JobSpec& job, const plans::Plan& plan,
                  const plans::ClusterSpec& cluster, const plans::Simulation& simulation,
                  actors::RunObserver& observer) {
  for (const plans::SimulatedWorker& worker : simulation.workers) {
    const plans::ClusterDevice& device = cluster.devices[worker.id.value - 1];
    actors::EventReport event;
    event.name = "worker.joined";
    event.text = absl::StrFormat("w%d joined (simulated %s x%g)", worker.id.value, device.name,
                                 device.speed);
    event.fields = {{"worker", absl::StrCat(worker.id.value)}, {"device", device.name}};
    observer.on_event(event);
  }
  observer.on_plan(plan, 0);
  actors::EventReport event;
  event.name = "plan.made";
  event.text = absl::StrFormat(
      "plan %d: %d stages (layers x replicas %s; %s), %s, %d micro-batches of %d", plan.generation,
      plan.stages.size(), plans::stages_text(plan), layers_of(job, plan),
      std::string(plans::to_text(plan.schedule)), plan.microbatch_count, plan.microbatch_rows);
  event.fields = {{"generation", absl::StrCat(plan.generation)}};
  observer.on_event(event);
}

/// First stage of each worker: where its updates are counted, and by what it is called.
std::map<uint32_t, int32_t> first_stages(const plans::Plan& plan) {
  std::map<uint32_t, int32_t> stages;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (const plans::ReplicaPlan& replica : plan.stages[s].replicas) {
      stages.try_emplace(replica.worker.value, static_cast<int32_t>(s));
    }
  }
  return stages;
}

/// [steps][S] seconds of computing, mean of the stage's replicas.
std::vector<std::vector<double>> busy_seconds(const plans::Plan& plan,
                                              const plans::Simulation& simulation) {
  const std::map<uint32_t, int32_t> homes = first_stages(plan);
  std::vector<std::vector<double>> busy(simulation.step_end_us.size(),
                                        std::vector<double>(plan.stages.size(), 0));
  for (const plans::SimulatedWorker& worker : simulation.workers) {
    for (const plans::SimulatedSlot& slot : worker.slots) {
      const auto stage =
          static_cast<size_t>(slot.is_update ? homes.at(worker.id.value) : slot.action.stage);
      busy[static_cast<size_t>(slot.step)][stage] +=
          (slot.end_us - slot.start_us) * 1e-6 /
          static_cast<double>(plan.stages[stage].replicas.size());
    }
  }
  return busy;
}

/// "0SEND_F3" or "1RECV_B3": what the tensor is called on the side of the sender or the receiver.
std::string transfer_name(const plans::SimulatedTransfer& transfer, bool sends) {
  const bool forward = transfer.producer.type == plans::ActionType::kForward;
  const int32_t stage = transfer.producer.stage + (sends ? 0 : forward ? 1 : -1);
  return absl::StrCat(stage, sends ? "SEND_" : "RECV_", forward ? "F" : "B",
                      transfer.producer.microbatch);
}

using Reports = std::map<uint32_t, actors::TimingsReport>;

void add_transfers(const plans::Simulation& simulation, int32_t step, Reports& reports) {
  for (const plans::SimulatedTransfer& transfer : simulation.transfers) {
    if (transfer.step != step) continue;
    const int32_t microbatch = transfer.producer.microbatch;
    reports.at(transfer.from.value)
        .slices.push_back(slice(transfer_name(transfer, true), kSendTrack, transfer.start_us,
                                transfer.end_us, microbatch));
    reports.at(transfer.to.value)
        .slices.push_back(slice(transfer_name(transfer, false), kReceiveTrack, transfer.end_us,
                                transfer.end_us + 1, microbatch));
  }
}

void add_reductions(const plans::Plan& plan, const plans::Simulation& simulation, int32_t step,
                    Reports& reports) {
  for (const plans::SimulatedReduction& reduction : simulation.reductions) {
    const plans::ReductionGroup& group = plan.groups[reduction.group.value];
    if (reduction.step != step || group.members.size() < 2) continue;
    for (const plans::ReplicaId member : group.members) {
      reports.at(plans::replica_of(plan, member).worker.value)
          .slices.push_back(slice(absl::StrCat("reduce g", reduction.group.value), kReductionTrack,
                                  reduction.start_us, reduction.end_us, -1));
    }
  }
}

void tell_timings(const plans::Plan& plan, const plans::Simulation& simulation, int32_t step,
                  actors::RunObserver& observer) {
  const std::map<uint32_t, int32_t> homes = first_stages(plan);
  Reports reports;
  for (const plans::SimulatedWorker& worker : simulation.workers) {
    actors::TimingsReport& report = reports[worker.id.value];
    report.worker = worker.id;
    report.stage = homes.at(worker.id.value);
    report.step = static_cast<uint64_t>(step) + 1;
    report.version = static_cast<uint64_t>(step);
    for (const plans::SimulatedSlot& slot : worker.slots) {
      if (slot.step != step) continue;
      report.slices.push_back(slice(slot.is_update ? "update" : plans::to_text(slot.action),
                                    kComputeTrack, slot.start_us, slot.end_us,
                                    slot.is_update ? -1 : slot.action.microbatch));
    }
  }
  add_transfers(simulation, step, reports);
  add_reductions(plan, simulation, step, reports);
  for (const auto& [worker, report] : reports) observer.on_timings(report);
}

}  // namespace

void replay(const plans::JobSpec& job, const plans::Plan& plan, const plans::ClusterSpec& cluster,
            const plans::Simulation& simulation, actors::RunObserver& observer) {
  tell_workers(job, plan, cluster, simulation, observer);
  const std::vector<std::vector<double>> busy = busy_seconds(plan, simulation);
  std::vector<uint32_t> stashes;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    stashes.push_back(static_cast<uint32_t>(plans::stash_peak_of(plan, static_cast<int32_t>(s))));
  }
  double start_us = 0;
  for (size_t step = 0; step < simulation.step_end_us.size(); ++step) {
    actors::StepReport report;
    report.step = step + 1;
    report.loss = std::numeric_limits<double>::quiet_NaN();
    report.gradient_norm = report.loss;
    report.learning_rate = report.loss;
    report.step_seconds = (simulation.step_end_us[step] - start_us) * 1e-6;
    report.samples = static_cast<uint64_t>(plan.microbatch_count * plan.microbatch_rows);
    report.tokens = report.samples * static_cast<uint64_t>(job.training.seq_len);
    report.workers_active = static_cast<int32_t>(simulation.workers.size());
    report.workers_total = report.workers_active;
    report.stage_busy_seconds = busy[step];
    report.stage_stash_peak = stashes;
    start_us = simulation.step_end_us[step];
    const bool is_due =
        step == 0 || (step + 1) % static_cast<uint64_t>(job.profiling.profile_freq) == 0;
    if (job.profiling.enable_profiling && is_due) {
      tell_timings(plan, simulation, static_cast<int32_t>(step), observer);
    }
    observer.on_step(report);
  }
}

}  // namespace skein::cli
