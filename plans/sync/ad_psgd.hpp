#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/sync/peer_policy.hpp"

namespace skein::plans {

/// AD-PSGD, wait-free: pipeline replicas are active or non-blocking; an active replica that is
/// ready averages with a random non-blocking one of its stage. Source: Lian et al., ICML'18,
/// algorithm 1 and section 4 on deadlocks (the bipartite graph).
///
/// How this maps to groups: every average is a group of two, kAverageWeights, 1/2 each. The active
/// member is ready. The non-blocking one need not be: it may be in the middle of a step, and nobody
/// waits for that step to end. Its `step` is the last it has finished (0 if none); its weights are
/// averaged as they are, and the gradient that it is computing, of the weights before, is applied
/// to the average. That is the paper's algorithm, whose communication thread does not stop the
/// computing one. A non-blocking replica that is ready applies its update and goes on, kLocal.
///
/// A replica is in one group at a time, so an active one waits if all non-blocking ones of its
/// stage are averaging: for the first that is through, never for a step. Pipeline replicas take
/// sides by their rank among those present, even active and odd non-blocking; so both sides have
/// members whoever dies. Cost: O(1) a signal; O(N S) a change of members.
class AdPsgdPolicy final : public PeerPolicy {
 public:
  AdPsgdPolicy(PipelineLayout layout, uint64_t seed);

 private:
  struct Stage {
    std::vector<ReplicaId> nonblocking;  // Free; any order.
    std::deque<ReplicaId> active;        // Waiting for a non-blocking one.
  };

  void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_free(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_joined(uint32_t pipeline, uint64_t now_us, Starts& starts) override;
  void on_left(uint32_t pipeline, uint64_t now_us, Starts& starts) override;

  void take_sides(uint64_t now_us, Starts& starts);
  void start_pair(ReplicaId active, Starts& starts);

  std::vector<Stage> stages_;
  std::vector<bool> is_nonblocking_;  // [pipeline replicas]
  bool has_nonblocking_ = false;
  Rng rng_;
};

}  // namespace skein::plans
