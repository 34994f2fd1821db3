#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/carried_updates.hpp"
#include "plans/modes/lease_pool.hpp"
#include "plans/modes/segment_totals.hpp"
#include "plans/plan/plan.hpp"
#include "plans/sync/column_layout.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::plans {

/// The iterations of columns that train at their own pace, through one plan. A state machine
/// without clock or I/O.
///
/// Time is cut in segments of whole steps. Within one, a column trains on samples that are leased
/// to it, applies its own updates, and between two iterations combines weights with whom the policy
/// says. When the samples of a segment are done, each once, and no group is under way, all columns
/// take the mean of their weights and moments: then they are as alike as after a synchronous step.
///
/// With a parameter server, whose shards are with the columns, a group pushes its members' updates
/// to it and takes its weights; a segment ends with a push of all. A column that is lost takes its
/// shard along: then the rest of the segment, which should be cut short, is done without a server.
///
/// A column is lost with the first of its workers. Its groups are dissolved, and the others go on;
/// only in the common mean of the end can nobody be missed. Its lease goes to another column, and
/// so do the samples of its iterations that are, at some stage, in nobody's weights any more.
///
/// Groups get numbers of their own in the order in which their members hear of them, as the policy
/// knows nothing of the common mean.
///
/// Events that are repeated, late, or of a lost column change nothing and are counted in `dropped`.
class ColumnLoop {
 public:
  /// All columns of the plan are there, and nothing is leased.
  ColumnLoop(const JobSpec& job, const Plan& plan);

  /// The steps [first, end) of the job; the segment before has ended.
  CoordinatorDecisions begin_segment(uint64_t first_step, uint64_t end_step);
  /// The segment ends with the step in which a sample was leased last.
  void cut_short();

  CoordinatorDecisions on_ready(const ReadyReport& report);
  CoordinatorDecisions on_group_start(const GroupStart& start);
  CoordinatorDecisions on_combined(ReplicaId replica, uint64_t number, bool ok);
  CoordinatorDecisions lose(WorkerId worker);

  /// Nobody can finish the segment: it has to be done again.
  bool has_failed() const { return has_failed_; }
  /// The segment has ended: all columns have the mean. True once a segment.
  bool take_end() { return std::exchange(has_ended_, false); }
  /// Some column of the plan is lost.
  bool has_lost() const;
  uint64_t end_step() const { return end_step_; }
  /// Of the segment, without those that have been lost.
  const std::vector<ColumnIteration>& iterations() const { return iterations_; }
  /// Of the segment, without the iterations that have been lost.
  SegmentTotals totals() const;
  uint64_t dropped() const { return dropped_; }

 private:
  struct Column {
    bool is_lost = false;
    bool is_computing = false;
    bool has_policy = true;      // The policy counts it as present.
    bool has_committed = false;  // In this segment.
    uint64_t busy_us = 0;  // Of its last iteration, of the stage that took longest; 0: none yet.
    uint64_t step = 0;     // Its own iterations so far.
    SampleLease lease;     // is_computing
    std::map<uint32_t, ReadyReport> ready;  // By stage.
  };
  struct Group {
    uint64_t policy_number = 0;
    bool is_closing = false;
    bool is_common = false;
    bool has_server = false;
    bool is_ok = true;
    uint32_t stage = 0;
    CarriedUpdates::Counts put_in;
    std::set<ReplicaId> members;
    std::set<ReplicaId> awaited;  // That have not said that they are through.
  };

  CoordinatorDecisions commit(uint32_t column);
  void resume(uint32_t column, CoordinatorDecisions& decisions);
  void leave_policy(uint32_t column, CoordinatorDecisions& decisions);
  void add_group(const CombineWeights& combine, Group group);
  void redo_lost_iterations();
  void redo_returned(CoordinatorDecisions& decisions);
  std::optional<SampleLease> next_lease(uint32_t column);
  bool would_be_last(uint32_t column) const;
  bool is_profiled() const;
  bool is_combining(ReplicaId replica) const;
  CoordinatorDecisions refuse(const GroupStart& start, const std::vector<ReplicaId>& waiting);
  void try_meet(CoordinatorDecisions& decisions);
  void close(bool is_common, CoordinatorDecisions& decisions);
  std::vector<ReplicaId> live_replicas(uint32_t stage) const;
  void end_if_over(std::map<uint64_t, Group>::iterator group, CoordinatorDecisions& decisions);
  std::set<uint32_t> columns_of(WorkerId worker) const;
  void dissolve_groups_of(uint32_t column, CoordinatorDecisions& decisions);
  CoordinatorDecisions drop();

  ColumnLayout layout_;
  Plan plan_;
  uint64_t batch_ = 0;         // Samples of a step.
  uint64_t samples_each_ = 0;  // Of a column's iteration.
  bool profiles_ = false;
  uint64_t profile_freq_ = 0;
  std::optional<uint64_t> profiled_step_;  // First step of the last segment with timings.
  bool profiles_segment_ = false;
  std::vector<Column> columns_;
  std::optional<LeasePool> pool_;
  std::set<ReplicaId> waiting_;  // For a group.
  std::map<uint64_t, Group> groups_;
  uint64_t next_number_ = 1;
  uint64_t end_step_ = 0;
  bool has_server_ = false;
  bool has_pushed_ = false;  // All have, at the end of the segment.
  bool is_meeting_ = false;  // The common mean is taken.
  bool is_common_ = true;    // All columns have it.
  bool has_ended_ = false;
  bool has_failed_ = false;
  std::vector<ColumnIteration> iterations_;  // Of the segment.
  CarriedUpdates carried_;
  uint64_t staleness_max_ = 0;  // Of the segment's groups.
  uint64_t dropped_ = 0;
};

}  // namespace skein::plans
