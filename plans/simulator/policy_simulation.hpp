#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plans/simulator/heterogeneity.hpp"
#include "plans/simulator/policy_listener.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

struct PolicySimulationOptions {
  PipelineLayout layout;
  std::vector<double> forward_us, backward_us;  // [stages], > 0, undisturbed.
  double update_us = 0;                         // Behind each backward, before the ready signal.
  /// A group of n takes 2 (n - 1) / n * exchange_us + n * latency_us, a ring; exchange_us is a
  /// stage's bytes by a link's bandwidth.
  double exchange_us = 0;
  double latency_us = 0;
  /// The part of a kReduceGradients that is done when the last member is ready, as buckets are
  /// reduced beside the backward.
  double hidden_us = 0;
  double moments_per_weight = 0;  // A group that averages the optimizer's moments moves them, too.
  /// A server serves one member after the other, each for `server_us`; a member takes at least
  /// `server_latency_us` for its push and pull. A group server then does the same as a member of
  /// the central one.
  double server_us = 0;
  double server_latency_us = 0;
  /// [pipeline replicas] > 0, samples that a claim has; empty: one each. An update is one claim.
  std::vector<uint64_t> claim_samples;
  /// Samples of all pipeline replicas together in a round; its last claims may be smaller. Then
  /// each does what it has begun without groups, and when the last one is done all take the global
  /// average, for `global_us`. 0: there are no rounds. With rounds nobody comes or goes. What is
  /// claimed before the policy has rounds belongs to none.
  uint64_t round_samples = 0;
  double global_us = 0;
  PipelineScenario scenario;
  /// Measured from `warm_up_us` to `duration_us`, of the simulated time. With rounds, whole ones,
  /// each with its global average: those that begin behind the warm-up and end in time, or else the
  /// last one that ends in time. If none does, all of the time.
  double warm_up_us = 0;
  double duration_us = 0;
};

struct PolicySimulation {
  double steps_per_second = 0;    // Updates of the first stage, over all pipeline replicas.
  double samples_per_second = 0;  // That these were of.
  std::vector<uint64_t> steps_by_pipeline;  // The samples per shard, in batches.
  std::map<uint64_t, uint64_t> sizes;       // Groups by number of members; kLocal is 1.
  std::map<uint64_t, uint64_t> staleness;   // Groups by staleness.
  /// Shares of the live replicas' time: between the ready signal and the start of the group, and
  /// in it.
  double waiting_share = 0;
  double averaging_share = 0;
  bool is_stuck = false;  // Nothing more would ever have happened.

  /// The size that the groups of a share `q` of all updates do not exceed: what a member sees. A
  /// group of n is n updates.
  uint64_t size_quantile(double q) const;
  double size_mean() const;  // The mean size of a group.
};

/// Runs a policy over simulated pipeline replicas, each a PipeDream 1F1B pipeline without flush
/// within a round: stage s does S - s forwards, then a backward and a forward in turn. After each
/// backward comes the update; then it signals ready, and stands still until a group that it was
/// ready for is over. With rounds, all pipeline replicas run empty at the end of each one, take a
/// global average, and nobody may come or go. A member that was
/// still computing (a non-blocking one) computes on, and may go on with kLocal.
///
/// A pipeline replica that dies loses what it was doing, and its groups fail when they would have
/// ended; one that joins begins with an empty pipeline. Between neighbouring stages nothing takes
/// time, nor do decisions. Deterministic; cost O(events * log).
///
/// `listener`, if any, is told of all of it, and may end the run early; what is measured then ends
/// there, too.
PolicySimulation simulate_policy(GroupScheduler& policy, const PolicySimulationOptions& options,
                                 PolicyListener* listener = nullptr);

}  // namespace skein::plans
