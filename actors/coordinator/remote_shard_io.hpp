#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/messages.hpp"
#include "net/data/data_plane.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::actors {

/// Who hears what has come of a shard.
using RemoteShardListener =
    caf::typed_actor<caf::reacts_to<ShardLayerArrived>, caf::reacts_to<ShardReceived>>;

/// Takes the state of stages from workers that do not see the run's folder, and writes their files,
/// which blocks: spawn it detached. One shard at a time is in memory: until a layer's stream is
/// open, what is sent waits in its socket.
///   in   ReceiveShard   the next shard; one that is not whole is dropped
///   in   StateArrived   from the data plane: a layer, of this shard or of one that was given up
///   in   AbandonShard   the shard is not waited for any longer
///   in   EndTransfers   nor is anything of the plan
///   out  ShardLayerArrived, then ShardReceived   to the listener; the last one once per shard that
///        is not dropped
using RemoteShardIo =
    caf::typed_actor<caf::reacts_to<plans::ReceiveShard, RemoteShardListener>,
                     caf::reacts_to<StateArrived>, caf::reacts_to<plans::AbandonShard>,
                     caf::reacts_to<plans::EndTransfers>>;

struct RemoteShardIoConfig {
  std::string run_folder;
  plans::JobSpec job;
  std::shared_ptr<net::DataPlane> plane;
};

struct RemoteShardIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "remote-shard-io";

  RemoteShardIo::stateful_pointer<RemoteShardIoState> self = nullptr;
  RemoteShardIoConfig config;
  std::optional<plans::ReceiveShard> shard;     // That is being received.
  RemoteShardListener listener;                 // Valid with it.
  std::map<int64_t, net::TensorHandle> layers;  // Those of the shard that have come.

  void receive(const plans::ReceiveShard& next, const RemoteShardListener& to);
  void on_layer(const StateArrived& arrived);
  void abandon(const plans::AbandonShard& order);
  void drop();
  absl::StatusOr<std::vector<gpu::SavedFile>> write() const;
};

RemoteShardIo::behavior_type remote_shard_io(
    RemoteShardIo::stateful_pointer<RemoteShardIoState> self, RemoteShardIoConfig config);

}  // namespace skein::actors
