#pragma once

#include <cstdint>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/sync/peer_policy.hpp"
#include "plans/sync/planned_groups.hpp"

namespace skein::plans {

struct PragueOptions {
  uint32_t group_size = 4;  // >= 2. Ours.
  uint64_t lag_max =
      4;  // Groups that a pipeline replica may be behind and still be drawn. Ours, too.
  uint64_t seed = 0;
};

/// Partial all-reduce with the smart group generator of Prague. Source: Luo et al., ASPLOS'20,
/// group buffer, group division and filter of slow workers.
///
/// Groups are drawn before their members are ready. A pipeline replica that is ready and has no
/// group in its buffer makes the generator divide all pipeline replicas without one into random
/// disjoint groups of `group_size`, and put each into its members' buffers; so groups never
/// conflict. Pipeline replicas that had over `lag_max` groups fewer than the one that asks are left
/// out: fast ones do not wait for slow ones, but slow ones may ask, too. Who remains alone goes on
/// alone if it asks, else stays idle.
///
/// Differs: one buffer for all stages of a pipeline replica (see `PlannedGroups`); no static
/// schedule, and no rule about machines. Cost: O(N) a division, which serves all that are idle.
class PraguePolicy final : public PeerPolicy {
 public:
  PraguePolicy(PipelineLayout layout, PragueOptions options);

 private:
  void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_joined(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  void on_left(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  /// Groups that the pipeline replica has had, or counts as having had.
  uint64_t progress(uint32_t pipeline) const;
  void divide(ReplicaId asking, Starts& starts);

  PragueOptions options_;
  PlannedGroups planned_;
  std::vector<uint64_t> head_starts_;  // [pipeline replicas] added to the groups that each has had.
  Rng rng_;
};

}  // namespace skein::plans
