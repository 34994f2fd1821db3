#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/averaging/weight_chunks.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::actors {

/// One replica's share of the parameter server of the group that it is a member of: between the
/// members and the central server (Basu et al., Balancing Stragglers Against Staleness, HiPC 2018).
/// Not an actor: owned by one, and touched only from its handlers.
///
/// The members own the chunks of the stage's vector, as in `plans::chunk_owner`. The owner of a
/// chunk adds up the members' weighted updates of it, in their order; its caller takes the sum to
/// the central server, and what comes from there back to the members. So the group pushes each
/// chunk once. Costs a member of k, for F floats, 2 (k - 1) / k * F floats out and as many in,
/// beside the F / k that it pushes and pulls for the group.
///
/// A replica is in one group at a time, and numbers ascend. Parts may come before the word of their
/// group, and are kept; those of a group that is over or aborted and repeated ones are dropped.
class GroupServer {
 public:
  struct Options {
    WeightStreams streams;  // Its `on_chunk` brings the chunk to the caller.
    std::vector<plans::ReplicaId>
        stage_replicas;  // Ascending; `ChunkPlace::sender` is a place here.
    uint32_t self = 0;   // Our place there.
    uint32_t chunk_floats = 0;
    uint32_t chunk_count = 0;
  };
  explicit GroupServer(Options options);

  using Floats = std::shared_ptr<const std::vector<float>>;  // A chunk.
  /// The members' updates of a chunk that is ours.
  struct Sum {
    uint32_t chunk = 0;
    Floats values;
  };

  /// The word of group `number`, ourselves among its two or more members.
  void begin(uint64_t number, const std::vector<plans::GroupMember>& members);
  /// Our update of a chunk, as a member of the group that has begun.
  std::optional<Sum> push(uint32_t chunk, Floats part);
  /// The update of another member, which is `sender` among the stage's replicas.
  std::optional<Sum> on_part(uint64_t number, uint32_t sender, uint32_t chunk, Floats part);
  /// The central server's weights of a chunk, for the other members, if it is ours.
  void hand_on(uint32_t chunk, const Floats& weights) const;
  void abort(uint64_t number);

  /// `replica` hands on the chunk to the members of group `number`, ourselves among them.
  bool is_owner(uint64_t number, plans::ReplicaId replica, uint32_t chunk) const {
    return serves(number) && group_->members[owner_of(chunk)].replica == replica;
  }
  /// Group `number` is under way.
  bool serves(uint64_t number) const { return group_ && group_->number == number; }

 private:
  struct Group {
    uint64_t number = 0;
    std::vector<plans::GroupMember> members;
    uint32_t self = 0;                                     // Our place among them.
    std::map<uint32_t, std::map<uint32_t, Floats>> parts;  // By chunk, by member.
  };

  /// Keeps the part; the sum, if it was the last one of its chunk.
  std::optional<Sum> take(uint32_t member, uint32_t chunk, Floats part);
  uint32_t owner_of(uint32_t chunk) const;

  const Options options_;
  const size_t early_max_;
  std::optional<Group> group_;
  uint64_t newest_ = 0;  // The newest group that has begun or was aborted.
  /// By number, by place among the stage's replicas and chunk; at most `early_max_`.
  std::map<uint64_t, std::map<std::pair<uint32_t, uint32_t>, Floats>> early_;
  size_t early_count_ = 0;
};

}  // namespace skein::actors
