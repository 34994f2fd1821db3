#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/averaging/group_server.hpp"
#include "actors/averaging/weight_chunks.hpp"
#include "net/data/data_plane.hpp"
#include "plans/base/ids.hpp"
#include "plans/collectives/weight_slices.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::actors {

/// A stage's parameter server, sharded over the workers of the stage: this replica's shard of it,
/// and its way to push updates to all shards and to pull their weights. Not an actor: owned by one,
/// and touched only from its handlers.
///
/// The vector is cut in chunks, and shard k of K has a contiguous slice of them. A member of a
/// group pushes its update, each chunk to the shard that has it; a shard adds the weighted updates
/// of all members of a group at once, in their order, and sends each of them the chunk's new
/// weights. Groups may overlap, and reach shards in different orders: a member may pull chunks of
/// different ages. Costs a member F (K - 1) / K floats out and as many in.
///
/// A group may have a server of its own, whose shards push the members' sums for all of them
/// (`GroupServer`).
///
/// Chunks may come before the word of their group, and are kept; those of a group that is over or
/// aborted, repeated ones and those of a wrong shape are dropped.
class WeightServer {
 public:
  struct Options {
    WeightStreams streams;  // Its `on_chunk` brings the chunk to ours; its replicas are the shards.
    size_t floats = 0;      // F
  };
  explicit WeightServer(Options options);
  WeightServer(const WeightServer&) = delete;
  WeightServer& operator=(const WeightServer&) = delete;

  struct Done {
    uint64_t number = 0;
    std::vector<float> weights;  // The server's, behind the group's updates.
  };

  /// Until `resume`, what is pushed waits: other members may be ahead of us.
  void suspend() { is_ready_ = false; }
  /// What all shards go on with. No push of ours is under way.
  std::optional<Done> resume(const std::vector<float>& weights);
  /// The word that these members push; `has_group_server`: by way of a server of their own, two or
  /// more. Numbers ascend.
  std::optional<Done> serve(uint64_t number, const std::vector<plans::GroupMember>& members,
                            bool has_group_server = false);
  /// Our update, as a member of group `number`, which is served.
  std::optional<Done> push(uint64_t number, const std::vector<float>& update);
  std::optional<Done> on_chunk(const net::TensorKey& key, const net::TensorHandle& chunk);
  /// The group lacks a shard: what it has pushed may be in some shards and not in others. So nobody
  /// pushes any more in this plan.
  void abort(uint64_t number);

 private:
  using Floats = GroupServer::Floats;
  struct Group {
    std::vector<plans::GroupMember> members;
    bool has_server = false;  // Its members that own a chunk push it, added up already.
    std::map<uint32_t, std::map<uint32_t, Floats>> parts;  // By chunk, by member.
    std::set<uint32_t> chunks_left;  // Those of our shard that have not been added.
  };
  struct Pull {
    uint64_t number = 0;
    std::vector<float> weights;
    std::vector<bool> has_chunk;
    uint32_t missing = 0;
  };

  size_t chunk_size(uint32_t chunk) const;
  uint32_t shard_of(uint32_t chunk) const;
  void push_chunk(uint64_t number, uint32_t chunk, Floats part);
  void push_sum(uint64_t number, std::optional<GroupServer::Sum> sum);
  void on_push(uint64_t number, uint32_t sender, uint32_t chunk, Floats part);
  void try_add_up(uint64_t number, uint32_t chunk);
  void on_pull(uint64_t number, uint32_t chunk, const Floats& weights);
  bool keep(uint64_t number, uint32_t chunk, std::span<const float> weights);
  std::optional<Done> finish();

  const Options options_;
  const uint32_t chunk_floats_;
  const uint32_t chunk_count_;
  std::vector<plans::ReplicaId> shards_;
  uint32_t self_ = 0;      // Our shard.
  plans::ChunkRange own_;  // Our chunks.
  bool is_ready_ = false;
  std::vector<float> weights_;  // Our shard's.
  std::map<uint64_t, Group> groups_;
  std::map<uint64_t, std::map<std::pair<uint32_t, uint32_t>, Floats>> early_;
  size_t early_count_ = 0;
  size_t early_max_ = 0;
  std::optional<uint64_t> newest_;  // That we have had word of.
  std::optional<Pull> pull_;
  std::optional<GroupServer> group_server_;  // Set by the constructor, which first finds `self_`.
};

}  // namespace skein::actors
