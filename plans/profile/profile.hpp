#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plans/job/model_spec.hpp"

namespace skein::plans {

/// Times of one layer for one micro-batch on a device of speed 1.0, in microseconds.
struct LayerTimes {
  double forward_us = 0;
  double backward_input_us = 0;
  double backward_weight_us = 0;
  double backward_us() const { return backward_input_us + backward_weight_us; }
  double total_us() const { return forward_us + backward_us(); }
  bool operator==(const LayerTimes&) const = default;
};

/// What one layer costs.
struct LayerProfile {
  std::string name;
  std::vector<LayerTimes> at;  // Parallel to `Profile::rows`.
  /// Output that the next layer takes, per row, in float32. Of the last layer, which has no next
  /// one: what it keeps from F to B even with recomputation (a gradient that F made), or 0.
  int64_t activation_row_bytes = 0;
  /// Kept from F to B per row, without recomputation: with its output, without its input, which is
  /// the output of the layer before it.
  int64_t stash_row_bytes = 0;
  int64_t parameter_bytes = 0;  // Weights.
  bool operator==(const LayerProfile&) const = default;
};

/// What a model costs, layer by layer, at one or more numbers of rows of a micro-batch.
struct Profile {
  std::string source;                // "measured", "estimated" or "written by hand".
  std::string device;                // What a speed of 1.0 is.
  std::vector<int64_t> rows;         // Ascending, each >= 1; at least one.
  std::vector<LayerProfile> layers;  // At least one.
  /// Memory for weights, gradients and optimizer state, in multiples of the weights' bytes:
  /// 4 for AdamW in float32, 3 for SGD with momentum; 0.5 more with a copy in bfloat16.
  double state_factor = 4;
  /// Bytes of an activation where it is kept, and where it travels, per byte in float32: 0.5 where
  /// it is bfloat16. `stash_row_bytes` are kept ones already.
  double activation_factor = 1;
  /// Gradient bytes sent per byte of weights: 1 where both have one type.
  double gradient_factor = 1;
  /// Time of the optimizer's update per byte of weights, on a device of speed 1.0.
  double update_us_per_byte = 0;
  /// Bytes of a parameter that the first and the last layer share; 0: none. It is counted in
  /// `parameter_bytes` of both, and its gradient is added up over the first and the last stage.
  int64_t tied_bytes = 0;
  bool operator==(const Profile&) const = default;
};

/// InvalidArgument with the field (`layers[3].forward_us`) if a number is negative, not finite or
/// missing, `rows` does not ascend, or `tied_bytes` exceeds the weights of the first or last layer.
absl::Status validate(const Profile& profile);

/// Times of `layer` for `rows` rows: linear between the measured numbers, in proportion to the rows
/// below the first one and beyond the last one by the slope of the last two (in proportion where
/// there is only one; level where the slope is below zero). `rows` >= 1.
LayerTimes layer_times(const Profile& profile, int64_t layer, int64_t rows);
/// Sum over a range.
LayerTimes range_times(const Profile& profile, const LayerRange& layers, int64_t rows);

/// Bytes of a stage on one replica of `rows` rows.
struct StageMemory {
  int64_t state_bytes = 0;  // Weights, gradients, optimizer.
  int64_t stash_bytes = 0;  // The stash of one micro-batch.
  /// With recomputation: the stash of the one layer that is computed again, the largest of them.
  int64_t extra_bytes = 0;
  /// An older version of the weights that backwards use: of its transformer blocks, which are all
  /// layers but the model's first and last one.
  int64_t version_bytes = 0;
};
/// A stash holds the stage's input (the output of the layer in front of it; the first layer's input
/// counts as nothing) and what its layers keep: `stash_row_bytes`, or with `recompute` only their
/// outputs, as F runs again in front of each B.
StageMemory stage_memory(const Profile& profile, const LayerRange& layers, int64_t rows,
                         bool recompute);
/// Bytes that a device keeps of the output of `layer`, per row.
int64_t kept_row_bytes(const Profile& profile, int64_t layer);
/// Bytes that one row of the activation between stage [.., layer) and [layer, ..) has; 0 < layer.
int64_t cut_row_bytes(const Profile& profile, int64_t layer);
/// Weights of a range; a parameter that its first and last layer share counts once.
int64_t parameter_bytes(const Profile& profile, const LayerRange& layers);

}  // namespace skein::plans
