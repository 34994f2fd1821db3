#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// What all policies among peers keep: who is there, who is ready, who is in which group, and how
/// old everybody's weights are. Decides nothing. Belongs to one policy.
///
/// The version of a replica is the number of steps its weights have seen: its own, or those of the
/// newest member of a group that it averaged with. It is what staleness is measured in, as a
/// replica's own count of steps never catches up with a faster one's.
class PeerRoster {
 public:
  /// All pipeline replicas are present. `decay`: averages weigh members by `staleness_weights`;
  /// else equally.
  explicit PeerRoster(PipelineLayout layout, std::optional<double> decay = {});

  const PipelineLayout& layout() const { return layout_; }
  bool is_present(uint32_t pipeline) const { return present_[pipeline]; }
  uint32_t present_count() const { return present_count_; }
  /// Not in a group.
  bool is_free(ReplicaId replica) const { return !peers_[replica.value].group; }
  /// Ready, and free to begin a group.
  bool is_waiting(ReplicaId replica) const {
    const Peer& peer = peers_[replica.value];
    return peer.ready && !peer.group;
  }

  /// False, and nothing changes: the replica is unknown or absent, or the signal repeated or late.
  bool take_ready(const ReadySignal& signal);

  /// The group of these replicas of a stage, ascending and free: kLocal of one, else
  /// kAverageWeights. They are ready no more, and in the group until it ends. kLocal is over at
  /// once, and may be of a replica that is in a group.
  GroupStart start(std::span<const ReplicaId> members);

  /// The members that are free now, ascending; some may be ready for the next group already. None:
  /// no such group is open.
  std::vector<ReplicaId> end(const GroupOutcome& outcome);

  /// Has not ended, and has members that are present.
  bool is_open(uint64_t number) const;

  /// False, and nothing changes: the pipeline replica is unknown, or absent or present already.
  /// Versions outlast a leave while others are present; when all have left, all are alike again.
  bool leave(const MembershipChange& change);
  bool join(const MembershipChange& change);

 private:
  struct Peer {
    bool ready = false;
    uint64_t next_step = 0;  // Least step of a new signal.
    uint64_t version = 0;
    std::optional<uint64_t> group;
    std::optional<uint64_t> left_step;  // Its next step when it left; only while others are there.
    /// It left this group, which is open, and has been in no other one since.
    std::optional<uint64_t> left_group;
  };
  struct OpenMember {
    ReplicaId replica;
    uint64_t lag = 0;  // What its version gained from the group.
  };

  std::vector<double> weights(std::span<const ReplicaId> members) const;

  PipelineLayout layout_;
  std::optional<double> decay_;
  std::vector<Peer> peers_;    // [replicas]
  std::vector<bool> present_;  // [pipeline replicas]
  uint32_t present_count_;
  uint64_t started_count_ = 0;
  /// By number, with members that have left. Of a group whose members are all lost nobody tells the
  /// end: there are no more of these than replicas.
  std::map<uint64_t, std::vector<OpenMember>> open_;
};

}  // namespace skein::plans
