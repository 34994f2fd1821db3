#pragma once

#include <cstdint>
#include <vector>

#include "plans/planner/candidate_plan.hpp"
#include "plans/planner/flow_times.hpp"
#include "plans/planner/layer_sums.hpp"

namespace skein::plans {

/// What one stage of a candidate plan takes, the slowest of its replicas deciding. Microseconds.
struct StageCost {
  double forward_us = 0;   // F of one micro-batch.
  double backward_us = 0;  // B of one micro-batch; with recomputation F runs again in it.
  double input_us = 0;     // I of one micro-batch, as B.
  double weight_us = 0;    // W of one micro-batch.
  double reduce_us = 0;    // The gradients' all-reduce with nothing beside it.
  double tail_us = 0;      // What of it is left behind the last backward.
  double update_us = 0;
  double cycle_us() const { return forward_us + backward_us; }
};

/// One micro-batch between two stages, one way.
struct CutCost : FlowTimes::Duration {
  std::vector<FlowTimes::CardLoad> cards;
};

struct CandidateCost {
  std::vector<StageCost> stages;  // [S]
  std::vector<CutCost> cuts;      // [S - 1] between stage s and s + 1.
  /// How long the busiest card is busy with one micro-batch, forward and backward, one way.
  double card_us = 0;
  FlowTimes::Duration tied;  // All-reduce of the tied parameter; 0 if there is none.
};

/// Prices candidate plans on one cluster: closed forms for what `simulate` plays through, except
/// that flows of different cuts do not meet. Not thread-safe: keeps caches. Borrows the request and
/// cluster.
class CostModel {
 public:
  /// `cluster` may differ from the request's: planners that take devices as equal pass such a one.
  CostModel(const PlanRequest& request, const ClusterSpec& cluster);

  CandidateCost cost(const CandidatePlan& candidate);
  StageCost stage_cost(const LayerRange& layers, const CandidateRank& rank,
                       const CandidatePlan& candidate);
  /// Rows of the cut in front of `layer`, from the replicas of one rank to those of another.
  CutCost cut_cost(int64_t layer, const CandidateRank& from, const CandidateRank& to);

  /// The same for `row_bytes` per row.
  CutCost flows_between(const CandidateRank& from, const CandidateRank& to, double row_bytes);

  /// Of one micro-batch over `count` equal devices of speed `speed`, F and B.
  LayerTimes even_times(const LayerRange& layers, int64_t rows, int64_t count, double speed);
  /// Gradient bytes of a stage's own group.
  double reduced_bytes(const LayerRange& layers) const;
  /// A ring over `devices` that adds up `bytes`.
  FlowTimes::Duration ring_cost(const std::vector<int32_t>& devices, double bytes);

  /// Speed of a device under the request's scenario where that slows it down forever.
  double speed(int32_t device) const { return speed_[static_cast<size_t>(device)]; }
  LayerSums& sums() { return sums_; }
  FlowTimes& flows() { return flows_; }
  const PlanRequest& request() const { return request_; }
  const ClusterSpec& cluster() const { return cluster_; }

 private:
  /// The stage of the last candidate plan that was priced with the same layers on the same
  /// replicas; -1: none.
  int32_t known_stage(const CandidatePlan& candidate, int32_t stage) const;
  double busiest_card_us(const std::vector<CutCost>& cuts);
  double reduction_tail_us(const LayerRange& layers, const CandidateRank& rank,
                           const StageCost& cost);

  const PlanRequest& request_;
  const ClusterSpec& cluster_;
  LayerSums sums_;
  FlowTimes flows_;
  std::vector<double> speed_;
  std::vector<Flow> scratch_;
  std::vector<double> card_us_;  // Scratch, by host; zeros between uses.
  CandidatePlan
      last_candidate_;  // A search asks for candidate plans that differ in a stage or two.
  CandidateCost last_cost_;
};

/// The cluster as planners see it that know equal devices only: every device has the mean speed,
/// every host the mean bandwidths and latencies, no link is special.
ClusterSpec equalised(const ClusterSpec& cluster);

/// Whether any device has a limit on its memory.
bool is_memory_limited(const ClusterSpec& cluster);

}  // namespace skein::plans
