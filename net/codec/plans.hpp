#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/elastic/restore.hpp"
#include "plans/plan/plan_part.hpp"
#include "plans/share/turn_report.hpp"

namespace skein::net {

// How one plan follows another: the old one ends, the state inventory is taken, the new one is
// assigned, prepared and started.

/// Where other workers connect to one.
struct Peer {
  plans::WorkerId worker;
  std::string data_address;  // A name.
  bool operator==(const Peer&) const = default;
};

/// Coordinator -> every member: the plan is about to change to that of the envelope's generation.
struct Quiesce {
  uint64_t committed_steps = 0;
  double gradient_norm = 0;           // The last one's.
  uint64_t committed_generation = 0;  // In which it was committed.
  bool operator==(const Quiesce&) const = default;
};

/// Worker -> coordinator: nothing of an older generation runs here any more.
struct Quiesced {
  std::vector<plans::InventoryItem> state_inventory;  // kInventoryMax.
  bool operator==(const Quiesced&) const = default;
};

/// Coordinator -> worker: prepare the replicas that the plan places on you, and send the layers
/// that move from you.
struct Assign {
  plans::PlanPart plan;            // Whoever knows the model validates it.
  std::vector<Peer> peers;         // To whom the receiver sends tensors; kPeersMax.
  plans::RestoreDecision restore;  // Moves from the receiver and to it; kMovesMax.
  std::string load_path;           // kPathBytesMax; empty: initial weights of the seed.
  uint64_t data_bytes = 0;         // Size of the training data; kBytesMax.
  uint64_t data_digest = 0;        // Any 64 bits.
  /// By stage, of those that the receiver hosts or keeps; kStagesMax.
  std::map<int32_t, plans::WorkerId> snapshot_peers;
  uint64_t state_generation = 0;  // In which the step before the first was committed.
  uint64_t config_digest = 0;     // As in `Joined`.
  uint64_t secret = 0;            // Shown on data connections; 0: it exchanges no tensors.
  bool operator==(const Assign&) const = default;
};

/// Worker -> coordinator: all replicas of the generation are allocated and loaded.
struct Prepared {
  plans::TurnReport turns;
  bool operator==(const Prepared&) const = default;
};

/// Worker -> coordinator: the checkpoint is not seen here, send us our layers.
struct LayersWanted {
  bool operator==(const LayersWanted&) const = default;
};

/// Worker -> coordinator -> whoever waits for it: an entry of the rendezvous store.
struct RendezvousEntry {
  std::string key;                         // kKeyBytesMax.
  std::vector<char> value;                 // Any bytes; kRendezvousBytesMax.
  std::vector<plans::WorkerId> receivers;  // kMembersMax; empty: all other workers.
  bool operator==(const RendezvousEntry&) const = default;
};

/// Coordinator -> worker: every worker is prepared; first do what is left of the step before.
struct Start {
  bool validate = false;
  bool checkpoint = false;
  bool last = false;      // No step follows.
  bool snapshot = false;  // Copy the state that you start with to its snapshot peer.
  uint64_t turn = 0;      // As in `plans::CommitOrder`.
  bool operator==(const Start&) const = default;
};

/// Worker -> coordinator: we keep a snapshot of a stage's state, our own or another's.
struct SnapshotKept {
  int32_t stage = 0;
  uint64_t step = 0;  // The state is that after so many committed steps.
  bool operator==(const SnapshotKept&) const = default;
};

}  // namespace skein::net
