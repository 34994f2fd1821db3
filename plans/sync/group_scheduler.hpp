#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// A replica has computed its part of its step number `step`: its gradient (synchronous policies)
/// or its own update is complete. Policies other than all-reduce count steps of each pipeline
/// replica by itself. The replica goes on as soon as it is through with the group that it was ready
/// for. So its next signal may come before the outcome of that group; it counts when the group has
/// ended.
struct ReadySignal {
  ReplicaId replica;
  uint64_t step = 0;
};

/// What the members of a group do with each other.
enum class Average {
  kReduceGradients,  // Sum of weight * gradient; applied when the step commits.
  kAverageWeights,   // Everybody applies its own update, then takes the sum of weight * weights.
  kServer,           // The server applies the sum of weight * update; members take its weights.
  kLocal,            // A group of one: applies its own update, and meets nobody.
};

struct GroupMember {
  ReplicaId replica;
  uint64_t step = 0;  // Its own.
  double weight = 0;  // The weight of what it contributes.
  /// It has not signalled that step for this group, and goes on computing meanwhile.
  bool is_nonblocking = false;
  bool operator==(const GroupMember&) const = default;
};

/// The members average now. None of them is in another group until this one has ended, but for
/// kReduceGradients, where a replica may belong to several groups of its plan. kLocal is over when
/// it starts, and nobody waits for its outcome; so a non-blocking member of a group may go on with
/// it.
struct GroupStart {
  uint64_t number = 0;  // Ascending in the order of starts; names the group in `GroupOutcome`.
  int32_t stage = 0;
  Average average = Average::kReduceGradients;
  int32_t server = 0;                // kServer: the group's own; 0: there is only the central one.
  GroupId group;                     // kReduceGradients: of the plan.
  std::vector<GroupMember> members;  // Ascending by replica: the rank in the collective.
  /// kAverageWeights: the optimizer's state as well. Only for pipeline replicas with parts of their
  /// own, which those of a job do not have: there `sync.average_moments` says it for all groups.
  bool averages_moments = false;
  uint64_t staleness = 0;  // Steps (peers) or updates (server) between the oldest and newest state.
  bool operator==(const GroupStart&) const = default;
};

/// All members are through, or the group was aborted: then each one goes on with what it had, as if
/// it had been alone. No outcome comes of a group whose members have all died or left.
struct GroupOutcome {
  uint64_t number = 0;
  bool ok = true;
};

/// A pipeline replica (one replica of every stage) comes, or has died or left. Its replicas are in
/// no group from then on; of a group that it was in, the others report the outcome.
struct MembershipChange {
  uint32_t pipeline = 0;
  bool joins = false;
  uint64_t step = 0;  // joins: of its first ready signals; signals of earlier steps are stale.
};

struct GroupDecisions {
  std::vector<GroupStart> starts;
  std::optional<uint64_t> wake_us;  // When to call `on_timer`; replaces every earlier wish.
};

/// Decides who averages with whom, when: one state machine for all stages of a job, one class per
/// policy, without clock or I/O. Times are microseconds of one steady clock. Signals may be
/// repeated or late, and timers early; they then change nothing.
class GroupScheduler {
 public:
  virtual ~GroupScheduler() = default;
  virtual GroupDecisions on_ready(const ReadySignal& signal, uint64_t now_us) = 0;
  virtual GroupDecisions on_timer(uint64_t now_us) = 0;
  virtual GroupDecisions on_group_end(const GroupOutcome& outcome, uint64_t now_us) = 0;
  virtual GroupDecisions on_membership(const MembershipChange& change, uint64_t now_us) = 0;
  /// False while gradients of every step are reduced: all are alike then, and meet at no round's
  /// end.
  virtual bool has_rounds() const { return true; }
  /// A held-out loss, of weights that all had met at.
  virtual void on_validation(double /*loss*/) {}
};

}  // namespace skein::plans
