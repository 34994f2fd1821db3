#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/elastic/saved_file.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::net {

// What is reported and ordered within a step. `plans::ReadyReport` is the message
// Ready, `plans::CommitOrder` is Commit, `plans::TokenOrder` is TokenOrder.

/// Worker -> coordinator: a replica has finished the collectives of all its groups.
struct Reduced {
  plans::ReplicaId replica;
  uint64_t step = 0;
  double norm_squared = 0;  // Not finite if the training has diverged.
  bool operator==(const Reduced&) const = default;
};

/// Worker -> coordinator, with several claims in flight: the first gradients of a claim are final.
struct EarlySignal {
  plans::ReplicaId replica;
  uint64_t step = 0;
  bool operator==(const EarlySignal&) const = default;
};

/// Worker -> coordinator: what has become of a token.
struct TokenReport {
  plans::ReplicaId replica;
  uint64_t step = 0;
  int32_t token = 0;
  plans::TokenEvent event = plans::TokenEvent::kOutput;
  bool operator==(const TokenReport&) const = default;
};

/// Worker -> coordinator: a replica of the last stage has finished the validation after `step`.
struct Validated {
  plans::ReplicaId replica;
  uint64_t step = 0;
  double loss_sum = 0;  // Not finite if the training has diverged.
  uint64_t loss_tokens = 0;
  bool operator==(const Validated&) const = default;
};

/// Worker -> coordinator: the leader of a stage has written and synced its files, or could not.
struct ShardSaved {
  int32_t stage = 0;
  uint64_t step = 0;                    // Steps done in the state that is saved.
  std::vector<plans::SavedFile> files;  // kFilesPerShardMax, each of kTensorsPerFileMax tensors.
  std::string error;                    // Why there are none; empty if they are there.
  bool operator==(const ShardSaved&) const = default;
};

/// Worker -> coordinator: the leader of a stage sends its state, to be saved there.
struct ShardSent {
  int32_t stage = 0;
  uint64_t step = 0;  // Steps done in the state.
  bool operator==(const ShardSent&) const = default;
};

/// Something that a device, a link or a group did.
struct Slice {
  std::string name;       // "0F3", "SEND_F", "update"
  uint8_t track = 0;      // Below kTracks.
  uint64_t start_us = 0;  // The coordinator's steady clock; kTimeUsMax.
  uint64_t duration_us = 0;
  int32_t microbatch = -1;  // -1: none.
  bool operator==(const Slice&) const = default;
};
/// 0 compute, 1 send, 2 receive, 3 gradient sync, 4 control, 5 checkpoint.
inline constexpr uint8_t kTracks = 6;

/// Worker -> coordinator after a profiled step.
struct Timings {
  plans::ReplicaId replica;
  uint64_t step = 0;
  std::vector<Slice> slices;  // kSlicesMax.
  uint64_t staleness = 0;     // How stale the weights were that the step was computed with.
  uint32_t weight_delay = 0;  // As `plans::ReadyReport` has it.
  bool operator==(const Timings&) const = default;
};

}  // namespace skein::net
