#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/sync/peer_policy.hpp"

namespace skein::plans {

/// AD-PSGD, wait-free: columns are active or passive; an active replica that is ready averages with
/// a random passive one of its stage. Source: Lian et al., ICML'18, algorithm 1 and section 4 on
/// deadlocks (the bipartite graph).
///
/// How this maps to groups: every average is a group of two, kAverageWeights, 1/2 each. The active
/// member is ready. The passive one need not be: it may be in the middle of a step, and nobody
/// waits for that step to end. Its `step` is the last it has finished (0 if none); its weights are
/// averaged as they are, and the gradient that it is computing, of the weights before, is applied
/// to the average. That is the paper's algorithm, whose communication thread does not stop the
/// computing one. A passive replica that is ready applies its update and goes on, kLocal.
///
/// A replica is in one group at a time, so an active one waits if all passive ones of its stage are
/// averaging: for the first that is through, never for a step. Columns take sides by their rank
/// among those present, even active and odd passive; so both sides have members whoever dies.
/// Cost: O(1) a signal; O(N S) a change of members.
class AdPsgdPolicy final : public PeerPolicy {
 public:
  AdPsgdPolicy(ColumnLayout layout, uint64_t seed);

 private:
  struct Stage {
    std::vector<ReplicaId> passive;  // Free; any order.
    std::deque<ReplicaId> active;    // Waiting for a passive one.
  };

  void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_free(ReplicaId replica, uint64_t now_us, Starts& starts) override;
  void on_joined(uint32_t column, uint64_t now_us, Starts& starts) override;
  void on_left(uint32_t column, uint64_t now_us, Starts& starts) override;

  void take_sides(uint64_t now_us, Starts& starts);
  void start_pair(ReplicaId active, Starts& starts);

  std::vector<Stage> stages_;
  std::vector<bool> is_passive_;  // [columns]
  bool has_passive_ = false;
  Rng rng_;
};

}  // namespace skein::plans
