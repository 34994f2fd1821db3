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

struct PartialReduceOptions {
  uint32_t group_size = 3;      // P, >= 2; of fewer columns present, all of them.
  std::optional<double> decay;  // Dynamic weights; none: constant ones, 1/P.
};

/// P-Reduce: as soon as P columns are ready, these P average their weights. Source: Miao et al.,
/// SIGMOD'21, sections on partial reduce, dynamic weights and group generation, as in papers.md
/// 1.10.
///
/// Update isolation is ruled out by a guard: if T = ceil((N-1)/(P-1)) groups have not connected all
/// N columns, groups must bridge two components until they have. Any T + N - 1 groups after a
/// connection connect again.
///
/// Differs: a pipeline's columns are grouped when their last stages are ready, and their other
/// stages follow: P columns at each stage by itself could wait for each other for ever.
/// Differs: the guard looks at the groups since all were connected last, not at a sliding window of
/// T: for P > 2 a window can drop old groups as fast as new ones bridge, and never be connected.
/// Cost: O(P log N) a group.
class PartialReducePolicy final : public PeerPolicy {
 public:
  PartialReducePolicy(ColumnLayout layout, PartialReduceOptions options);

 private:
  void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_joined(uint32_t column, uint64_t now_us, Starts& starts) override;
  void on_left(uint32_t column, uint64_t now_us, Starts& starts) override;
  void form_groups(Starts& starts);
  std::optional<std::vector<uint32_t>> next_group() const;
  void remember(const std::vector<uint32_t>& group);

  PartialReduceOptions options_;
  PlannedGroups planned_;
  Components components_;         // Columns that groups have connected since `groups_since_` was 0.
  uint64_t groups_since_ = 0;     // Since all columns were connected.
  std::deque<uint32_t> waiting_;  // Columns whose last stage is ready, in the order of arrival.
};

}  // namespace skein::plans
