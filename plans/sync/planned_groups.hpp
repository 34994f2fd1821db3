#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "plans/sync/peer_roster.hpp"

namespace skein::plans {

/// Groups of pipeline replicas that a policy has decided before all of their replicas are ready.
/// Each pipeline replica has one list of groups, which the replicas of all its stages follow in the
/// same order; at each stage a group starts when its last replica there is ready.
///
/// One order for all stages is what keeps pipeline replicas from waiting for each other in a
/// circle: were a at stage 0 and b at stage 1 of unlike groups, each could wait for a replica of
/// the other that its own pipeline holds back. Here the oldest group that has not started waits for
/// nobody who waits. So a death, which leaves a smaller group, is all that has to be handled.
class PlannedGroups {
 public:
  using Starts = std::vector<GroupStart>;

  /// `roster` must live longer.
  explicit PlannedGroups(PeerRoster& roster);
  PlannedGroups(const PlannedGroups&) = delete;
  PlannedGroups& operator=(const PlannedGroups&) = delete;

  /// Appends a group to the lists of its pipeline replicas: present ones, ascending, at least one.
  void plan(std::span<const uint32_t> pipelines, Starts& starts);
  /// The replica has no group to go to yet.
  bool is_idle(ReplicaId replica) const { return lists_[replica.value].groups.empty(); }
  /// Groups that the pipeline replica has been given since it joined.
  uint64_t planned_count(uint32_t pipeline) const { return planned_counts_[pipeline]; }

  /// The replica waits (as the roster says) and is not idle: repeated calls change nothing.
  void arrive(ReplicaId replica, Starts& starts);
  /// To be called after the roster has let the pipeline replica go.
  void leave(uint32_t pipeline, Starts& starts);

 private:
  struct Planned {
    std::vector<uint32_t> pipelines;      // Present ones.
    std::vector<uint32_t> arrived_count;  // [stages]
    std::vector<bool> started;            // [stages]
    uint32_t open_stages = 0;             // That have not started.
  };
  using Groups = std::map<uint64_t, Planned>;
  struct List {
    std::deque<uint64_t> groups;  // Not started here yet, oldest first.
    bool arrived = false;         // At the first of them.
  };

  void start_if_complete(Groups::iterator group, uint32_t stage, Starts& starts);

  PeerRoster& roster_;
  std::vector<List> lists_;               // [replicas]
  std::vector<uint64_t> planned_counts_;  // [pipeline replicas]
  Groups groups_;                         // By number, ascending in the order of planning.
  uint64_t next_number_ = 0;
};

}  // namespace skein::plans
