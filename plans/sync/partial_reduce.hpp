#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "plans/sync/components.hpp"
#include "plans/sync/peer_policy.hpp"
#include "plans/sync/planned_groups.hpp"

namespace skein::plans {

/// What rules out that some pipeline replicas' updates never reach the others. T =
/// ceil((N-1)/(P-1)) groups are the fewest that can connect all N pipeline replicas.
enum class IsolationGuard {
  /// The paper's: unless the last T groups connect all pipeline replicas, the next group bridges
  /// two of their
  /// components. With P = 2, any 2 T - 1 groups in a row connect all; with P > 2 nothing is
  /// promised, as old groups may be forgotten as fast as new ones bridge.
  kLastGroups,
  /// Ours: if T groups have not connected all pipeline replicas since they were connected last,
  /// groups bridge
  /// until they have, which takes T + N - 1 groups at most. Waits less for slow pipeline replicas.
  kSinceConnected,
};

struct PartialReduceOptions {
  uint32_t group_size = 3;      // P, >= 2; of fewer pipeline replicas present, all of them.
  std::optional<double> decay;  // Dynamic weights; none: constant ones, 1/P.
  IsolationGuard guard = IsolationGuard::kLastGroups;
};

/// P-Reduce: as soon as P pipeline replicas are ready, these P average their weights. Source: Miao
/// et al., SIGMOD'21, on partial reduce, dynamic weights and group generation.
///
/// Differs: a pipeline's pipeline replicas are grouped when their last stages are ready, and their
/// other stages follow: P pipeline replicas at each stage by itself could wait for each other for
/// ever. Differs: members keep their own counts of steps; what the paper calls adopting the newest
/// iteration is the version that `PeerRoster` counts.
/// Differs: N is the number of pipeline replicas present, and so is P if that is less.
/// Cost: O(P log N) a group; kLastGroups: O(N).
class PartialReducePolicy final : public PeerPolicy {
 public:
  PartialReducePolicy(PipelineLayout layout, PartialReduceOptions options);

 private:
  void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_joined(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  void on_left(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  void form_groups(Starts& starts);
  std::optional<std::vector<uint32_t>> next_group() const;
  void remember(const std::vector<uint32_t>& group);

  /// T, for groups of `size`, > 1.
  uint64_t connecting_count(uint32_t size) const;
  bool must_bridge(uint32_t size) const;

  PartialReduceOptions options_;
  PlannedGroups planned_;
  Components components_;      // Components that the groups make at which the guard looks.
  uint64_t groups_since_ = 0;  // kSinceConnected: that all pipeline replicas were connected.
  std::deque<std::vector<uint32_t>> last_groups_;  // kLastGroups: up to T.
  std::deque<uint32_t>
      waiting_;  // Pipeline replicas whose last stage is ready, in the order of arrival.
};

}  // namespace skein::plans
