#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/coordinator/coordination.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/profile/estimate.hpp"

namespace skein::plans {

inline JobSpec small_job() {
  JobSpec job;
  job.model.layers = 4;
  job.training.steps = 3;
  job.training.micro_batch_size = 2;
  job.training.global_batch_size = 4;
  job.parallelism.pipeline_parallel_degree = 2;
  job.validation.interval = 0;
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  job.profiling.enable_profiling = false;
  return job;
}

template <class Decision>
const Decision* find(const CoordinatorDecisions& decisions) {
  for (const CoordinatorDecision& decision : decisions) {
    if (const auto* found = std::get_if<Decision>(&decision)) return found;
  }
  return nullptr;
}

/// A coordination with everything a step needs, and a clock that ticks with each event.
struct Cluster {
  explicit Cluster(JobSpec job = small_job(), int64_t workers = 2)
      : coordination({std::move(job), workers}, 0) {}
  explicit Cluster(Coordination::Options options) : coordination(std::move(options), 0) {}

  /// Who was a worker before comes from the address of the connection with that number.
  CoordinatorDecisions join(PeerNumber peer, uint32_t previous = 0) {
    const std::string address = absl::StrCat("127.0.0.1:", previous != 0 ? previous : peer);
    return decided(coordination.on_join(
        peer, {"host", 100, address, "cpu x1", 1.0, WorkerId{previous}}, ++now));
  }
  /// What a worker of a job whose plan the planner chooses says of its device.
  /// `memory_bytes_max`: 0: it has enough for everything.
  CoordinatorOutcome profiled(uint32_t worker, const JobSpec& job, double flops_per_second = 1e9,
                              int64_t memory_bytes_max = 0) {
    MeasuredWorker measured;
    measured.memory_bytes = int64_t{1} << 40;  // The machine's, which they share.
    measured.memory_bytes_max = memory_bytes_max;
    measured.profile = estimate_profile(job.model, job.training.seq_len, rows_to_measure(job),
                                        job.optimizer, flops_per_second, flops_per_second);
    return coordination.on_profiled({worker}, measured, ++now);
  }
  CoordinatorDecisions quiesced(uint32_t worker, std::vector<InventoryItem> inventory = {}) {
    for (InventoryItem& each : inventory) each.generation = coordination.generation_of(each.step);
    return decided(coordination.on_quiesced(WorkerId{worker}, coordination.generation(),
                                            std::move(inventory), ++now));
  }
  CoordinatorDecisions prepared(uint32_t worker) {
    return decided(coordination.on_prepared(WorkerId{worker}, coordination.generation(), ++now));
  }
  CoordinatorDecisions lose(uint32_t worker) {
    return decided(coordination.on_worker_lost(WorkerId{worker},
                                               absl::UnavailableError("link closed"), ++now));
  }
  /// Until workers 1 and 2 are asked to prepare.
  CoordinatorDecisions gather() {
    join(1);
    join(2);
    quiesced(1);
    return quiesced(2);
  }
  void start() {
    gather();
    prepared(1);
    prepared(2);
  }
  CoordinatorDecisions ready(uint32_t replica, uint64_t step, double norm_squared = 4,
                             double loss = 12) {
    ReadyReport report;
    report.replica = ReplicaId{replica};
    report.step = step;
    report.norm_squared = norm_squared;
    if (replica == 1) {
      report.loss_sum = loss;
      report.loss_tokens = 6;
    }
    return decided(coordination.on_ready(sender(report.replica), report, ++now));
  }
  CoordinatorDecisions finish_step(uint64_t step) {
    ready(0, step);
    ready(1, step);
    return decided(coordination.on_journaled(step, ++now));
  }
  /// The worker that holds the replica; 0: there is no such replica.
  WorkerId sender(ReplicaId replica) const {
    const auto& plan = coordination.plan();
    if (!plan || int64_t{replica.value} >= replica_count(*plan)) return {};
    return replica_of(*plan, replica).worker;
  }
  /// What was decided, with everything that follows from what the planner, who looks for state that
  /// workers have left, and who looks whether they are dead, answer at once.
  CoordinatorDecisions decided(CoordinatorOutcome outcome) {
    coordination.check_invariants();
    CoordinatorDecisions decisions = std::move(outcome).decisions();
    append(decisions, coordination.after_commit(now));
    return answered(std::move(decisions));
  }
  CoordinatorDecisions answered(CoordinatorDecisions decisions) {
    for (size_t i = 0; i < decisions.size() && plans_at_once; ++i) {
      if (std::holds_alternative<SeekLeftState>(decisions[i])) {
        append(decisions, decided(coordination.on_left_state(left_steps, ++now)));
      }
      const auto* check = std::get_if<CheckListener>(&decisions[i]);
      if (check != nullptr && closed_are_dead) {
        append(decisions, decided(coordination.on_worker_gone(check->address, ++now)));
      }
      const auto* request = std::get_if<RequestPlan>(&decisions[i]);
      if (request == nullptr) continue;
      const PlanReady ready{request->id, answer(*request->question), 0};
      append(decisions, decided(coordination.on_plan_ready(ready, ++now)));
    }
    return decisions;
  }

  Coordination coordination;
  uint64_t now = 0;
  bool plans_at_once = true;
  bool closed_are_dead = true;  // Nobody listens any more where a link has closed.
  uint64_t left_steps = 0;      // A checkpoint of so many can be made of what workers have left.
};

}  // namespace skein::plans
