#pragma once

#include <cstdint>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/sync/peer_policy.hpp"
#include "plans/sync/planned_groups.hpp"

namespace skein::plans {

/// What the artefact of SDPipe calls AD-PSGD: in each round all pipeline replicas are paired at
/// random, the same for all stages, and both of a pair must have come to that round. Source:
/// SDPipe, PVLDB'23, artefact. A weak baseline; `AdPsgdPolicy` is the real one.
///
/// An odd one out goes on alone. A joiner takes part from the next round that is drawn; who loses
/// its partner goes on alone for that round. Cost: O(N) a round.
class PairedRoundsPolicy final : public PeerPolicy {
 public:
  PairedRoundsPolicy(PipelineLayout layout, uint64_t seed);

 private:
  void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_joined(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  void on_left(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  void draw_round(Starts& starts);

  PlannedGroups planned_;
  Rng rng_;
};

}  // namespace skein::plans
