#pragma once

#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "plans/modes/local_updates.hpp"
#include "plans/modes/mode_list.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "tests/plans/modes/pipeline_world.hpp"
#include "tests/plans/small_cluster.hpp"

namespace skein::plans {

inline constexpr LayerRange kAll{0, 6};

inline JobSpec rounds_of_four() {
  JobSpec job = pipeline_job(1, 3);
  job.training.steps = 12;
  job.sync.round_steps = 4;
  return job;
}

template <class Decision>
size_t count(const CoordinatorDecisions& decisions) {
  size_t found = 0;
  for (const auto& each : decisions) found += std::holds_alternative<Decision>(each) ? 1 : 0;
  return found;
}

/// Everybody goes on alone.
class NobodyMeets final : public GroupScheduler {
 public:
  GroupDecisions on_ready(const ReadySignal& signal, uint64_t) override {
    GroupStart alone{.number = next_++, .average = Average::kLocal};
    alone.members = {{signal.replica, signal.step, 1.0}};
    return {{alone}, {}};
  }
  GroupDecisions on_timer(uint64_t) override { return {}; }
  GroupDecisions on_group_end(const GroupOutcome&, uint64_t) override { return {}; }
  GroupDecisions on_membership(const MembershipChange&, uint64_t) override { return {}; }

 private:
  uint64_t next_ = 0;
};

/// The training modes, with that policy for every job.
inline const ModeList& lonely_modes() {
  static const ModeList modes = [] {
    ModeList changed = training_modes();
    for (ModeEntry& each : changed) {
      if (each.name != kLocalMode) continue;
      each.make = [](const JobSpec& job, const Plan& plan) -> std::unique_ptr<TrainingMode> {
        return std::make_unique<LocalUpdates>(job, plan, std::make_unique<NobodyMeets>());
      };
    }
    return changed;
  }();
  return modes;
}

/// Three workers, each a pipeline replica of one stage if no planner chooses, that do at once what
/// they are told.
struct PipelineCluster : Cluster {
  explicit PipelineCluster(const JobSpec& job = rounds_of_four(), uint32_t workers = 3)
      : Cluster(options(job, workers)), is_flushed(job.sync.claims_in_flight == 1) {
    for (uint32_t id = 1; id <= workers; ++id) join(id);
    const bool is_planned = job.parallelism.pipeline_parallel_degree == kAutoDegree;
    for (uint32_t id = 1; is_planned && id <= workers; ++id) decided(profiled(id, job));
    begun = all_quiesced(workers, {});
    for (uint32_t id = 1; id <= workers; ++id) append(begun, prepared(id));
  }

  static Coordination::Options options(const JobSpec& job, uint32_t workers) {
    Coordination::Options options;
    options.job = job;
    options.worker_count = workers;
    options.modes = &lonely_modes();
    return options;
  }

  CoordinatorDecisions all_quiesced(uint32_t workers, const std::vector<InventoryItem>& inventory) {
    CoordinatorDecisions decisions;
    for (uint32_t id = 1; id <= workers; ++id) {
      if (coordination.members().contains({id})) append(decisions, quiesced(id, inventory));
    }
    return decisions;
  }

  /// What follows from `todo`, until nothing does or `until` decisions of pipeline replicas are
  /// carried out. Returns everything that was decided.
  CoordinatorDecisions run(CoordinatorDecisions todo, size_t until = 1'000'000) {
    CoordinatorDecisions all;
    std::deque<CoordinatorDecision> waiting(todo.begin(), todo.end());
    for (size_t done = 0; !waiting.empty();) {
      const CoordinatorDecision decision = waiting.front();
      waiting.pop_front();
      all.push_back(decision);
      if (done == until) continue;
      const size_t before = waiting.size();
      for (auto& each : answer(decision)) waiting.push_back(std::move(each));
      if (waiting.size() > before) ++done;
    }
    return all;
  }

  CoordinatorDecisions answer(const CoordinatorDecision& decision) {
    Coordination& to = coordination;
    if (const auto* claim = std::get_if<ClaimSamples>(&decision)) {
      return ready_pipeline(claim->pipeline, claim->step);
    }
    if (const auto* average = std::get_if<AverageWeights>(&decision)) {
      CoordinatorDecisions decisions;
      if (!average->is_closing && !is_flushed) return decisions;  // Claims come by themselves.
      if (!average->is_closing) {
        const GroupMember& alone = average->members.front();
        return ready_pipeline(alone.replica.value, alone.step + 1);
      }
      if (!average->is_global || holds_mean) return decisions;
      for (const GroupMember& each : average->members) {
        append(decisions, decided(to.on_averaged(sender(each.replica), each.replica,
                                                 average->number, true, ++now)));
      }
      return decisions;
    }
    if (const auto* start = std::get_if<StartRun>(&decision)) {
      keep_snapshots(start->order, to.steps_done());
    }
    if (const auto* commit = std::get_if<BroadcastCommit>(&decision)) {
      keep_snapshots(commit->order, commit->order.step + 1);
    }
    if (const auto* journal = std::get_if<JournalCommit>(&decision)) {
      return holds_journal ? CoordinatorDecisions{}
                           : decided(to.on_journaled(journal->record.step, ++now));
    }
    return {};
  }

  void keep_snapshots(const CommitOrder& order, uint64_t steps_done) {
    if (!order.snapshot) return;
    std::vector<WorkerId> workers;
    for (const auto& [id, member] : coordination.members()) workers.push_back(id);
    const auto stages = static_cast<int32_t>(coordination.plan()->stages.size());
    for (WorkerId each : workers) {
      for (int32_t stage = 0; stage < stages; ++stage) {
        coordination.on_snapshot_kept(each, stage, steps_done);
      }
    }
  }

  CoordinatorDecisions ready_pipeline(uint32_t pipeline, uint64_t step) {
    if (dead.contains(pipeline)) return {};
    CoordinatorDecisions decisions;
    const PipelineLayout layout = pipeline_layout(*coordination.plan());
    for (uint32_t stage = layout.stages; stage-- > 0;) {
      ReadyReport report;
      report.replica = layout.replica(stage, pipeline);
      report.step = step;
      report.norm_squared = 9;
      report.step_us = step_us.at(pipeline);
      report.busy_us = step_us.at(pipeline);
      if (stage + 1 == layout.stages) {
        report.loss_sum = 4;
        report.loss_tokens = 2;
      }
      append(decisions, decided(coordination.on_ready(sender(report.replica), report, ++now)));
    }
    return decisions;
  }

  const bool is_flushed;
  CoordinatorDecisions begun;
  std::vector<uint64_t> step_us = std::vector<uint64_t>(8, 1000);  // By pipeline replica.
  std::set<uint32_t> dead;  // Pipeline replicas that do nothing.
  bool holds_mean = false, holds_journal = false;
};

}  // namespace skein::plans
