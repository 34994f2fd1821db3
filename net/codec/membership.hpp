#pragma once

#include <cstdint>
#include <string>

#include "plans/base/ids.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"

namespace skein::net {

// Who is here, lives, leaves, or cannot go on. `plans::JoinRequest` is the message Join. What a
// repeat does stands in the schema; bounds are those of net/codec/bounds.hpp.

/// Coordinator -> worker: the join is accepted.
struct Joined {
  plans::WorkerId worker;
  std::string job;             // Its id, a name.
  std::string job_config;      // The resolved job file; kJobConfigBytesMax.
  std::string run_folder;      // On the coordinator's machine; kPathBytesMax.
  std::string run;             // Its id, a name.
  uint64_t config_digest = 0;  // The configuration's; any 64 bits.
  std::string data_address;    // Where the coordinator takes tensors, a name; empty: nowhere.
  bool operator==(const Joined&) const = default;
};

/// Coordinator -> peer, before it closes the connection.
struct Refused {
  std::string reason;  // kReasonBytesMax, as all reasons; longer ones are cut when they are sent.
  std::string run;     // If the peer serves another run: the one that is here; a name.
  bool operator==(const Refused&) const = default;
};

/// Worker -> coordinator, every heartbeat interval.
struct Heartbeat {
  plans::WorkerActivity activity;  // Names; kEventsMax for each count.
  uint64_t sent_us = 0;            // The worker's steady clock; kTimeUsMax.
  bool operator==(const Heartbeat&) const = default;
};

/// Coordinator -> worker, at once.
struct HeartbeatAck {
  uint64_t sent_us = 0;  // From the heartbeat.
  uint64_t coordinator_us = 0;
  bool operator==(const HeartbeatAck&) const = default;
};

/// Worker -> coordinator: the worker cannot go on.
struct Failed {
  std::string reason;
  bool bad_input = false;  // Bad data or checkpoints: another worker would fail alike.
  bool stays = false;      // It hands over what it holds, and waits for `Stop`; else it ends.
  bool operator==(const Failed&) const = default;
};

/// Worker -> coordinator: a neighbour or a group does not answer.
struct PeerFailure {
  std::string reason;
  plans::WorkerId peer;  // 0: not known.
  bool is_unreachable = false;
  bool operator==(const PeerFailure&) const = default;
};

/// Worker -> coordinator: we cannot read the checkpoint that the plan starts with.
struct CheckpointUnreadable {
  std::string reason;
  bool operator==(const CheckpointUnreadable&) const = default;
};

/// Worker -> coordinator: move our state away, we must go.
struct Leave {
  std::string reason;
  bool operator==(const Leave&) const = default;
};

/// Viewer -> coordinator: let this worker leave.
struct DrainRequest {
  plans::WorkerId worker;
  bool operator==(const DrainRequest&) const = default;
};

/// Coordinator -> worker: leave; the run is over, or goes on without you.
struct Stop {
  std::string reason;
  /// The run has failed with committed steps that are not on disk: the worker writes what it holds,
  /// as it does when its coordinator is gone.
  bool keeps_state = false;
  bool operator==(const Stop&) const = default;
};

/// Coordinator -> worker, in experiments: be slower, or lose a link.
struct Emulate {
  double speed = 0;              // In (0, 1], relative to the device's own; 0: as it is.
  plans::WorkerId drop_link_to;  // 0: none.
  double drop_seconds = 0;       // >= 0; 0: for ever.
  bool operator==(const Emulate&) const = default;
};

}  // namespace skein::net
