#pragma once

#include <cstdint>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/modes/claim_pool.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::net {

// What pipeline replicas are told, and tell, when each applies updates of its own.
// `plans::UpdateOrder` is the message PipelineCommit.

/// Coordinator -> workers of a pipeline replica that waits for samples: train on these.
struct Claim {
  uint64_t step = 0;  // The pipeline replica's own, counted from 0 in each generation.
  plans::SampleClaim samples;
  bool profile = false;  // Report the timings of the step.
  uint64_t turn = 0;     // As in `plans::CommitOrder`.
  bool operator==(const Claim&) const = default;
};

/// Coordinator -> members of a group: take the weighted sum of the members' weights, or exchange
/// updates with the stage's parameter server.
struct Average {
  plans::ReplicaId replica;  // The receiver's.
  uint64_t number = 0;       // Ascending for each replica; kStepsMax.
  /// Ascending; kMembersMax. Replica and weight only: the rest does not travel.
  std::vector<plans::GroupMember> members;
  bool is_nonblocking = false;  // The replica goes on computing meanwhile.
  bool is_global = false;       // The global average, of moments as well: the end of a round.
  bool has_server = false;
  bool has_group_server = false;  // has_server: the group has one of its own in between.
  bool is_closing = false;        // One of the last of a round, for members that wait for samples.
  uint64_t steps_done = 0;        // is_global: the steps of the job that are then done.
  uint64_t staleness = 0;         // Between the oldest and the newest of what is averaged.
  bool operator==(const Average&) const = default;
};

/// Worker -> coordinator: the replica is through with a group of more than one member.
struct Averaged {
  plans::ReplicaId replica;
  uint64_t number = 0;
  bool ok = false;  // False: it was aborted, and the replica goes on with what it had.
  bool operator==(const Averaged&) const = default;
};

/// Coordinator -> member: the group lacks a member; go on with what you have.
struct AbortGroup {
  plans::ReplicaId replica;
  uint64_t number = 0;
  bool operator==(const AbortGroup&) const = default;
};

}  // namespace skein::net
