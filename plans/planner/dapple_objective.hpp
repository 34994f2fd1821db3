#pragma once

#include <cstdint>
#include <span>

namespace skein::plans {

/// A stage of DAPPLE's model. Compute and network stages alternate; a network stage has
/// forward = backward = the transfer time of the cut's activations and nothing to reduce.
struct DappleStage {
  double forward_us = 0;   // One micro-batch.
  double backward_us = 0;  // One micro-batch.
  double reduce_us = 0;    // The all-reduce of the stage's gradients, once a step.
};

/// The predicted length of a step and its parts.
struct DappleLength {
  double warm_up_us = 0;  // T_w
  double steady_us = 0;   // T_s
  double ending_us = 0;   // T_e
  int32_t pivot = 0;      // Q, a position in the list of stages.
  double total_us() const { return warm_up_us + steady_us + ending_us; }
};

/// Source: DAPPLE, PPoPP'21, section 3.2 (formulas 1-3), with K_s, the time that the other stages
/// hide or add behind the pivot, as the sum of the backwards from stage s to the pivot for s <= Q,
/// and minus that of the backwards between them for s > Q. With it the length equals a simulation
/// of the schedule "PB" for even pipelines whose transfers take no longer than their stages.
/// Bubbles inside the pivot are ignored, as there.
///
/// `stages`  [S']  at least one; every second one, beginning with the second, is a network stage.
/// `microbatch_count`  M >= 1.
/// Cost            O(S').
DappleLength dapple_length(std::span<const DappleStage> stages, int64_t microbatch_count);

}  // namespace skein::plans
