#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/fail_point.hpp"
#include "actors/messages.hpp"
#include "net/data/data_plane.hpp"

namespace skein::actors {

/// Who hears that a stage's files are on disk.
using ShardListener = caf::typed_actor<caf::reacts_to<ShardWritten>>;
/// Who takes a sealed snapshot of an own stage.
using SnapshotListener = caf::typed_actor<caf::reacts_to<SnapshotTaken>>;

/// Writes the files of one stage, which blocks, or sends them where the run's folder is not seen,
/// or may not be written to; and seals and sends snapshots, which takes the processor for a while:
/// spawn it detached.
///   in   ShardRequest      a copy of the state; training goes on meanwhile
///   in   SnapshotRequest   the same, for the memory of a worker: another one, or under local
///   updates
///                          this one if no other can keep it
///   in   ShardGone         from itself: what was sent of a shard is held no longer
///   out  ShardWritten, SnapshotTaken   to the listener, once per request; again if a shard that is
///                                      to be sent cannot be, for which it may wait until fewer of
///                                      its stage are under way
using ShardIo = caf::typed_actor<caf::reacts_to<ShardRequest, ShardListener>,
                                 caf::reacts_to<SnapshotRequest, SnapshotListener>>;
using ShardIoItself = ShardIo::extend<caf::reacts_to<ShardGone>>;

struct ShardIoConfig {
  std::string run_folder;
  std::string run;  // The run's id, which its folder says.
  /// The coordinator's data plane takes the shards that this worker cannot write; empty: it takes
  /// none.
  std::string coordinator_address;
  plans::ModelSpec model;
  uint64_t generation = 0;                // The plan's: no other one writes to the same names.
  std::string optimizer;                  // "adamw" or "sgd".
  int shard_count = 0;                    // Stages of the plan.
  std::shared_ptr<net::DataPlane> plane;  // Carries snapshots, and shards.
  FailPointHandle fail_point;             // Set by tests; else null.
};

struct ShardIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "shard-io";
  /// A stage's shards for the coordinator.
  struct Outbox {
    int under_way = 0;  // Held by the data plane.
    std::deque<std::pair<ShardRequest, ShardListener>> waiting;
  };

  ShardIoItself::stateful_pointer<ShardIoState> self = nullptr;
  ShardIoConfig config;
  std::map<int32_t, Outbox> outboxes;  // By stage.

  /// Writes the stage's files, or announces its layers where the coordinator is to write them.
  void save(ShardRequest request, const ShardListener& listener);
  /// Sends the stage's layers, now or as soon as it may.
  void announce(ShardRequest request, const ShardListener& listener);
  /// Sends what may be sent of the stage.
  void send_waiting(int32_t stage);
  absl::Status send_shard(const ShardRequest& request);
  SnapshotTaken send(const SnapshotRequest& request) const;
};

ShardIoItself::behavior_type shard_io(ShardIoItself::stateful_pointer<ShardIoState> self,
                                      ShardIoConfig config);

}  // namespace skein::actors
