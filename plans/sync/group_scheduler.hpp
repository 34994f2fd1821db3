#pragma once

#include <cstdint>
#include <vector>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// A replica's gradient of `step` is complete.
struct ReadySignal {
  ReplicaId replica;
  uint64_t step = 0;
};

/// The members of `group` run their collective for `step` now.
struct GroupStartDecision {
  GroupId group;
  uint64_t step = 0;
  std::vector<ReplicaId> members;
  uint64_t generation = 0;  // Of the plan that has the group; filled in by who runs the policy.
  bool operator==(const GroupStartDecision&) const = default;
};

/// Decides who combines with whom, when: one state machine per policy and stage, without clock or
/// I/O. Signals may be repeated or late; they then change nothing.
class GroupScheduler {
 public:
  virtual ~GroupScheduler() = default;
  virtual std::vector<GroupStartDecision> on_ready(const ReadySignal& signal) = 0;
};

}  // namespace skein::plans
