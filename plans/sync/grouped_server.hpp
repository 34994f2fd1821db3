#pragma once

#include <cstdint>
#include <vector>

#include "plans/sync/server_policy.hpp"
#include "plans/sync/step_barrier.hpp"

namespace skein::plans {

/// Which group a pipeline replica belongs to: [pipeline replicas], each in 0..G-1.
using PipelineGroups = std::vector<int32_t>;

/// Grouped parameter servers: inside a group synchronous, between groups asynchronous. Source:
/// Basu et al., Balancing Stragglers Against Staleness, HiPC 2018.
///
/// A step of group g at a stage is one GroupStart of kServer with `server` g + 1 and all live
/// members of the group. The group's server adds up what they push, sends the sum to the central
/// server of the stage (0), takes its weights and hands them back; the central server adds
/// updates as they come. Without servers of groups, which is ours, `server` is 0: members push
/// straight to the central one, which adds up what a group pushes at once. So does a member that is
/// alone, as a server of its own would only pass its push on. `staleness` is the
/// number of updates of other groups that were started at the central server since this group took
/// its weights: G - 1 where groups are equally fast, as many as the others manage meanwhile where
/// it is slow.
///
/// The weight of a member is 1 / (number of live pipeline replicas). In even groups that is 1 /
/// |group|, the mean, times 1 / G, the rule for the learning rate without which groups lose
/// accuracy; in uneven ones every pipeline replica's gradient still counts the same.
///
/// With one group this is a synchronous parameter server.
///
/// A pipeline replica that joins goes into the group that it was in, if that is there (it may have
/// been away for the end of a round), else into the one with the fewest live pipeline replicas, of
/// several the first one, and takes part from the first step on that the group has not begun at any
/// stage.
class GroupedServerPolicy final : public ServerPolicy {
 public:
  /// All pipeline replicas of the layout are there, and begin with `first_step`.
  GroupedServerPolicy(const PipelineLayout& layout, const PipelineGroups& groups,
                      bool has_group_servers = true, uint64_t first_step = 0);

  GroupDecisions on_membership(const MembershipChange& change, uint64_t now_us) override;

  /// Regroups at the next safe boundary: each old group still does, at all stages, the steps that
  /// it has begun at any. Changes nothing while the last regrouping is under way. Every pipeline
  /// replica that is there needs a group; what is said of others does not matter.
  GroupDecisions regroup(const PipelineGroups& groups);
  bool is_regrouping() const;
  /// -1: the pipeline replica is not there.
  PipelineGroups groups() const;

 private:
  void open(const PipelineGroups& groups);
  void join(uint32_t pipeline);
  void advance(uint32_t stage, GroupDecisions& decisions) override;
  void advance_all(GroupDecisions& decisions);

  std::vector<StepBarrier> barriers_;  // Those that close, then the G open ones.
  PipelineGroups group_of_;            // [pipeline replicas], of the open ones; -1: not there.
  PipelineGroups last_group_of_;       // The same, with those that have left; -1: in none of them.
  int32_t group_count_ = 0;
  bool has_group_servers_;
};

}  // namespace skein::plans
