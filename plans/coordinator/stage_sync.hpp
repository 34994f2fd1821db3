#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/base/outcome.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// A group of a stage's replicas has ended: every member that is left is through with it.
struct EndedGroup {
  uint64_t number = 0;
  bool ok = true;
  std::set<ReplicaId> members;
};

/// What the replicas of one stage have reported under one plan, and in which groups they are: who
/// may report, the reports and their norms, the groups that run and whom they await. It executes
/// groups and chooses none. A state machine without clock or I/O; one per stage and generation.
class StageSync {
 public:
  explicit StageSync(const StagePlan& stage);

  /// The replica works on `step` from now on: a report of that step, and of no other, is taken.
  void expect(ReplicaId replica, uint64_t step);
  /// The same for all replicas that are not lost.
  void expect_all(uint64_t step);

  /// The first gradients of the step that is awaited are final. None: it was taken.
  std::optional<DropReason> on_early_signal(WorkerId sender, ReplicaId replica, uint64_t step);
  /// None: the report was taken.
  std::optional<DropReason> on_ready(WorkerId sender, const ReadyReport& report);
  std::optional<DropReason> on_reduced(WorkerId sender, ReplicaId replica, uint64_t step,
                                       double norm_squared);
  /// The replica is through with a group. The group, if it was the last one that was awaited.
  Outcome<std::vector<EndedGroup>> on_group_done(WorkerId sender, ReplicaId replica,
                                                 uint64_t number, bool ok);

  void begin_group(uint64_t number, const std::set<ReplicaId>& members);
  struct Abort {
    std::vector<ReplicaId> awaited;   // Who has to be told.
    std::optional<EndedGroup> ended;  // Nobody was awaited any more.
  };
  /// The group lacks something that it needs; it ends, not well, when its live members say so.
  Abort abort_group(uint64_t number);
  /// The replica is gone: it reports nothing any more, and no group awaits it. Its groups are to be
  /// aborted by the caller.
  void lose(ReplicaId replica);

  bool has(ReplicaId replica) const { return replicas_.contains(replica); }
  bool is_lost(ReplicaId replica) const { return replicas_.at(replica).is_lost; }
  /// Its report of the step is there, and so is the norm of what it will apply.
  bool is_final(ReplicaId replica) const;
  /// All replicas are final.
  bool is_complete() const;
  /// The replica has to say that it is through with a group.
  bool is_in_group(ReplicaId replica) const;
  bool has_groups() const { return !groups_.empty(); }
  bool is_member(uint64_t group, ReplicaId replica) const;
  const ReadyReport& report(ReplicaId replica) const;
  /// Squared norm of the stage's gradient, by its first replica. Of a complete stage.
  double norm_squared() const;
  std::vector<ReplicaId> live() const;

  void check_invariants() const;

 private:
  struct Replica {
    WorkerId worker;
    bool is_lost = false;
    std::optional<uint64_t> step;  // That a report is awaited of; none: of none.
    bool has_asked = false;        // It has sent the early signal or the report.
    std::optional<ReadyReport> report;
    std::optional<double> norm_squared;
  };
  struct Group {
    bool ok = true;
    std::set<ReplicaId> members;
    std::set<ReplicaId> awaited;
  };
  std::optional<DropReason> check_sender(WorkerId sender, ReplicaId replica) const;
  /// The same, and something of that step is awaited of the replica.
  std::optional<DropReason> check_awaited(WorkerId sender, ReplicaId replica, uint64_t step) const;
  std::optional<EndedGroup> take_if_ended(std::map<uint64_t, Group>::iterator group);

  // Invariants: a report is of the step that is awaited, and stands for the early signal as well; a
  // norm comes with a report; a lost replica
  // awaits nothing and is awaited by no group; of a group, who is awaited is a member, at least one
  // is awaited, and nobody is awaited by two groups.
  std::map<ReplicaId, Replica> replicas_;  // Never empty.
  std::map<uint64_t, Group> groups_;       // By number.
};

}  // namespace skein::plans
