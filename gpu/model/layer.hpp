#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "gpu/ops.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// Sizes that every layer of a replica shares.
struct LayerShape {
  plans::ModelSpec model;
  int64_t rows = 0;                                                  // Samples.
  int64_t seq_len = 0;                                               // T
  int64_t tokens() const { return rows * seq_len; }                  // N
  int64_t activations() const { return tokens() * model.channels; }  // N * C
};

/// Weights and gradients of one layer inside the stage's flat buffers, one pointer per parameter in
/// the order of `plans::layer_parameters`.
struct LayerParameters {
  std::vector<float*> weights;
  std::vector<ConstNumbers> operands;  // The weights as products read them.
  std::vector<float*> gradients;
};

/// A block of the model between embedding and head: activations in, activations out. The memory
/// that a micro-batch needs is handed in, so one object serves all of them.
class Layer {
 public:
  virtual ~Layer() = default;

  /// Numbers that the stash of one micro-batch has beside its input: activations, and statistics in
  /// float32.
  virtual int64_t stash_numbers() const = 0;
  virtual int64_t statistics_floats() const = 0;
  /// That wait between `backward_input` and `backward_weight`: the gradient of the output, which
  /// the caller may put there and the layer does not touch, and what the former leaves for the
  /// latter.
  virtual int64_t pending_numbers() const = 0;
  /// Memory that calls may use and nothing survives in; shared by all layers.
  virtual int64_t scratch_numbers() const = 0;

  struct Memory {
    ConstNumbers input;  // [N, C], kept from the forward to the backward.
    Numbers stash;
    float* statistics = nullptr;
    Numbers pending;
    Numbers scratch;
    const float* turns = nullptr;  // [T, D], `rotary_turns`; null with learned positions.
    /// With one there is one row, whose positions are appended.
    Ops::KeyValueCache cache;
  };
  /// Overwrites `output` [N, C] and the stash.
  virtual void forward(Ops& ops, const LayerParameters& parameters, const Memory& memory,
                       Numbers output) const = 0;
  /// Overwrites `input_gradient` [N, C], from `output_gradient` [N, C] elsewhere, which the caller
  /// keeps for `backward_weight`. Adds to the gradients of norms, whose statistics are at hand;
  /// matrices wait in `pending`.
  virtual void backward_input(Ops& ops, const LayerParameters& parameters, const Memory& memory,
                              ConstNumbers output_gradient, Numbers input_gradient) const = 0;
  /// Adds to the gradients of matrices and biases.
  virtual void backward_weight(Ops& ops, const LayerParameters& parameters, const Memory& memory,
                               ConstNumbers output_gradient) const = 0;
};

std::unique_ptr<Layer> make_block(const LayerShape& shape);

}  // namespace skein::gpu
