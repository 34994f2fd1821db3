#pragma once

#include <deque>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "tests/plans/modes/column_world.hpp"
#include "tests/plans/small_cluster.hpp"

namespace skein::plans {

inline constexpr LayerRange kAll{0, 6};

inline JobSpec segments_of_four() {
  JobSpec job = column_job(1, 3);
  job.training.steps = 12;
  job.sync.segment_steps = 4;
  return job;
}

template <class Decision>
size_t count(const CoordinatorDecisions& decisions) {
  size_t found = 0;
  for (const auto& each : decisions) found += std::holds_alternative<Decision>(each) ? 1 : 0;
  return found;
}

/// Three workers, each a column of one stage, that do at once what they are told.
struct ColumnCluster : Cluster {
  explicit ColumnCluster(const JobSpec& job = segments_of_four(), uint32_t workers = 3)
      : Cluster(job, workers) {
    for (uint32_t id = 1; id <= workers; ++id) join(id);
    begun = all_halted(workers, {});
    for (uint32_t id = 1; id <= workers; ++id) append(begun, prepared(id));
  }

  CoordinatorDecisions all_halted(uint32_t workers, const std::vector<Holding>& holdings) {
    CoordinatorDecisions decisions;
    for (uint32_t id = 1; id <= workers; ++id) {
      if (coordination.members().contains({id})) append(decisions, halted(id, holdings));
    }
    return decisions;
  }

  /// What follows from `todo`, until nothing does or `until` decisions of columns are carried out.
  /// Returns everything that was decided.
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
    if (const auto* lease = std::get_if<LeaseSamples>(&decision)) {
      return ready_column(lease->column, lease->step);
    }
    if (const auto* tell = std::get_if<TellPolicy>(&decision)) {
      const auto* ready = std::get_if<ReadySignal>(&tell->what);
      if (ready == nullptr) return {};
      GroupStart alone{.number = next_group++, .combination = Combination::kLocal};
      alone.members = {{ready->replica, ready->step, 1.0}};
      CoordinatorDecisions decisions = to.on_group_start(alone, ++now);
      append(decisions, ready_column(ready->replica.value, ready->step + 1));
      return decisions;
    }
    if (const auto* combine = std::get_if<CombineWeights>(&decision)) {
      CoordinatorDecisions decisions;
      if (!combine->is_common || holds_mean) return decisions;
      for (const GroupMember& each : combine->members) {
        append(decisions, to.on_combined(each.replica, combine->number, true, ++now));
      }
      return decisions;
    }
    if (const auto* journal = std::get_if<JournalCommit>(&decision)) {
      return holds_journal ? CoordinatorDecisions{} : to.on_journaled(journal->record.step, ++now);
    }
    return {};
  }

  CoordinatorDecisions ready_column(uint32_t column, uint64_t step) {
    if (dead.contains(column)) return {};
    ReadyReport report;
    report.replica = {column};
    report.step = step;
    report.norm_squared = 9;
    report.step_us = step_us.at(column);
    report.loss_sum = 4;
    report.loss_tokens = 2;
    return coordination.on_ready(report, ++now);
  }

  CoordinatorDecisions begun;
  std::vector<uint64_t> step_us = std::vector<uint64_t>(8, 1000);  // By column.
  uint64_t next_group = 0;
  std::set<uint32_t> dead;  // Columns that do nothing.
  bool holds_mean = false, holds_journal = false;
};

}  // namespace skein::plans
