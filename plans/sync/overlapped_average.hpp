#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/peer_roster.hpp"

namespace skein::plans {

struct OverlappedAverageOptions {
  /// >= 1: a stage's replicas average when they have done so many updates each, in the mean.
  uint64_t local_steps = 1;
  /// >= 1: updates that a replica does while an average with it is under way; then it waits.
  uint64_t ahead_max = 4;
  bool average_moments = false;  // As in `GroupStart`.
};

/// Averages beside the computing: a replica that is ready applies its update and goes on at once,
/// and every so many updates all replicas of the stage average what they have just then, as
/// non-blocking members. What the average adds to a replica comes on top of the updates that it has
/// done meanwhile. So neither an exchange nor somebody else's step is ever waited for, and a link
/// that is slow makes averages rarer, not steps longer. The mean of the replicas moves by the mean
/// of their updates, as if they were averaged all the time.
///
/// Source: Overlap Local-SGD (Wang, Liang, Joshi, ICASSP'20), with the difference of an average in
/// place of an anchor that pulls. Differs: who is slow has done fewer updates when an average
/// begins, and is not waited for; and nobody runs away: a replica does at most `ahead_max` updates
/// during one average, and between two averages a stage does `local_steps` * N.
///
/// Of pipeline replicas that die or leave, an average goes on among the rest or fails; the next one
/// begins with whoever is present. Cost: O(1) a signal, O(N) an average.
class OverlappedAveragePolicy final : public GroupScheduler {
 public:
  OverlappedAveragePolicy(PipelineLayout layout, OverlappedAverageOptions options);

  GroupDecisions on_ready(const ReadySignal& signal, uint64_t now_us) override;
  GroupDecisions on_timer(uint64_t) override { return {}; }
  GroupDecisions on_group_end(const GroupOutcome& outcome, uint64_t now_us) override;
  GroupDecisions on_membership(const MembershipChange& change, uint64_t now_us) override;

 private:
  using Starts = std::vector<GroupStart>;
  struct Stage {
    uint64_t updates = 0;             // Since the last average began.
    std::optional<uint64_t> average;  // Under way, by number.
  };

  void go_on(ReplicaId replica, Starts& starts);
  void average_if_due(uint32_t stage, Starts& starts);

  OverlappedAverageOptions options_;
  PeerRoster roster_;
  std::vector<Stage> stages_;
  std::vector<uint64_t> ahead_;  // [replicas] updates since the average under way began.
};

}  // namespace skein::plans
