#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

struct StageModelOptions {
  plans::ModelSpec model;
  plans::LayerRange layers;
  plans::OptimizerSpec optimizer;
  int64_t rows = 0;         // Samples of a micro-batch that this replica computes, >= 1.
  int64_t seq_len = 0;      // T
  int32_t stash_count = 1;  // Micro-batches whose stash may live at once (the schedule's peak).
  /// Older versions of the weights that stashes may need at once: updates between a forward and its
  /// backward; 0: nothing is in flight when `update` is called.
  int32_t old_versions = 0;
  bool recompute = false;  // Stash only inputs, run the forward again in the backward.
  /// Above 0: gradients of a step are summed exactly (`gpu/exact_sum.hpp`), in the same bits in
  /// whatever order, and by whatever replicas, its micro-batches come: so many in all replicas.
  /// Backwards are whole then, and a stage with a head, whose forward has some of the gradient,
  /// has one micro-batch in flight.
  int64_t exact_summands = 0;
  uint64_t seed = 0;  // Decides the initial weights, which do not depend on the partition.
};

/// The state kept for one parameter, each [element_count] float32.
enum class StateKind { kWeight, kMomentFirst, kMomentSecond };  // SGD: momentum in kMomentFirst.
/// All of them, weights first: the order in which state is copied, sent and averaged. Another order
/// is another protocol.
inline constexpr std::array kStateKinds = {StateKind::kWeight, StateKind::kMomentFirst,
                                           StateKind::kMomentSecond};

struct UpdateOptions {
  double lr = 0;
  double gradient_factor = 1;  // Multiplies every gradient: the clipping factor.
  int64_t step = 0;            // Counted from 0; AdamW's bias correction uses step + 1.
};

/// Which of a stage's gradients: those of a tied embedding, if its other use is in another stage,
/// are apart.
struct GradientParts {
  bool stage = true;
  bool tied = true;
};

/// Activations [rows, T, C] that a stage takes from others, or their gradient. Float32, which the
/// host has, become them by themselves; a device's memory may hold the type of its activations,
/// too.
struct TakenActivations {
  TakenActivations() = default;
  TakenActivations(ConstNumbers at, int64_t number_count) : numbers(at), count(number_count) {}
  template <std::convertible_to<std::span<const float>> Floats>
  TakenActivations(const Floats& floats)
      : numbers(std::span<const float>(floats).data()),
        count(static_cast<int64_t>(std::span<const float>(floats).size())) {}

  ConstNumbers numbers;
  int64_t count = 0;
};
/// The same that it gives to others, which it writes.
struct GivenActivations {
  GivenActivations() = default;
  GivenActivations(Numbers at, int64_t number_count) : numbers(at), count(number_count) {}
  GivenActivations(std::span<float> floats)
      : numbers(floats.data()), count(static_cast<int64_t>(floats.size())) {}
  GivenActivations(std::vector<float>& floats) : GivenActivations(std::span(floats)) {}

  Numbers numbers;
  int64_t count = 0;
};

/// The layers of one stage on one device: weights, gradients, optimizer state and stashes.
/// Activations are in the device's memory as it prefers them (`DeviceInfo`); all state is float32.
///
/// Not thread-safe. Methods that take `Ops&` run inside `Work::run` on the device's queue; the rest
/// only while the device has no work of this model. All spans are host memory, float32, row-major.
/// Gradients accumulate over micro-batches until `start_step`.
class StageModel {
 public:
  /// Allocates everything up front and initialises the weights. ResourceExhausted or
  /// InvalidArgument.
  static absl::StatusOr<std::unique_ptr<StageModel>> create(const StageModelOptions& options,
                                                            Device& device);
  virtual ~StageModel() = default;

  virtual const std::vector<plans::ParameterSpec>& parameters() const = 0;
  virtual bool has_embedding() const = 0;  // Takes tokens instead of activations.
  virtual bool has_head() const = 0;  // Takes targets and yields a loss instead of activations.
  virtual int64_t activation_elements() const = 0;  // rows * T * C
  virtual const DeviceInfo& device_info() const = 0;
  virtual int64_t stash_bytes() const = 0;   // The stash of one micro-batch.
  virtual int64_t memory_bytes() const = 0;  // Everything allocated.

  /// What one micro-batch needs. Unused spans are empty.
  struct Input {
    std::span<const int32_t> tokens;   // [rows, T], if has_embedding()
    std::span<const int32_t> targets;  // [rows, T], if has_head(); -1: not counted.
    TakenActivations activations;      // Otherwise; read until the call's work ends.
  };

  /// Zeroes the gradients and the loss, and frees stashes that a step which was given up has left.
  /// The gradient of each token's loss is multiplied by
  /// `loss_scale`, 1 / number of tokens of the whole global batch.
  virtual absl::Status start_step(Ops& ops, double loss_scale) = 0;
  /// Zeroes the gradients only, while micro-batches of the step that begins, and of later ones, are
  /// in flight. A stage with a head has none in flight then, and starts a step.
  virtual absl::Status start_gradients(Ops& ops) = 0;
  /// Keeps a stash under `microbatch`, a name that no other one has that is kept. `output` [rows,
  /// T, C] is written unless has_head().
  virtual absl::Status forward(Ops& ops, int32_t microbatch, const Input& input,
                               const GivenActivations& output) = 0;
  /// `backward_input` then `backward_weight`, fused where that is faster. `output_gradient`
  /// [rows, T, C] unless has_head(); `input_gradient` [rows, T, C] is written unless
  /// has_embedding(). Frees the stash.
  virtual absl::Status backward(Ops& ops, int32_t microbatch,
                                const TakenActivations& output_gradient,
                                const GivenActivations& input_gradient) = 0;
  virtual absl::Status backward_input(Ops& ops, int32_t microbatch,
                                      const TakenActivations& output_gradient,
                                      const GivenActivations& input_gradient) = 0;
  virtual absl::Status backward_weight(Ops& ops, int32_t microbatch) = 0;
  /// The same for `layers` of the stage only. Called for ranges that tile it from its end to its
  /// beginning, with no other call in between, the parts are the whole, bit for bit. Behind each
  /// part of the step's last micro-batch, the gradients of its layers are complete; until the next
  /// `start_step` the host may change them, also while the device works on the other layers.
  /// `output_gradient` is given to the first part only, `input_gradient` to the last.
  virtual absl::Status backward_part(Ops& ops, int32_t microbatch, const plans::LayerRange& layers,
                                     const TakenActivations& output_gradient,
                                     const GivenActivations& input_gradient) = 0;
  virtual absl::Status backward_weight_part(Ops& ops, int32_t microbatch,
                                            const plans::LayerRange& layers) = 0;
  /// Forward without a stash; adds to the loss sums. Same spans as `forward`.
  virtual absl::Status evaluate(Ops& ops, const Input& input, const GivenActivations& output) = 0;

  /// Sum of the token losses and number of tokens counted since `start_step` or `reset_loss`.
  virtual double loss_sum() const = 0;
  virtual int64_t loss_tokens() const = 0;
  virtual void reset_loss() = 0;

  /// Gradients to be added up over the stage's replicas, without those of a tied embedding when its
  /// other use is in another stage; and the latter (empty if there is none). Host-visible memory in
  /// the order of `parameters()`, the same at all times: the spans may be had while work runs. They
  /// hold the gradients of the layers that `share_gradients` was called for, in this step.
  virtual std::span<float> stage_gradients() = 0;
  virtual std::span<float> tied_gradients() = 0;
  /// Floats of memory that each gradient takes in these spans: 1, or 2 where sums are exact, which
  /// are float64.
  virtual int64_t floats_per_gradient() const = 0;
  /// The same gradients in the device's memory, for what adds them up there; on a device whose
  /// memory the host sees they are the spans above. Complete when the work of their last backward
  /// has ended.
  virtual std::span<float> device_stage_gradients() = 0;
  virtual std::span<float> device_tied_gradients() = 0;
  /// Shows the gradients of `layers`, which are complete, in the host's spans when the work ends.
  /// What the host has made of them counts from the next `gradient_norm_squared` on, before which
  /// all layers must have been shared, with the same `parts`. Costs nothing on a device whose
  /// memory the host sees.
  virtual absl::Status share_gradients(Ops& ops, const plans::LayerRange& layers,
                                       const GradientParts& parts = {}) = 0;
  /// Of a tied embedding whose other use is in another stage, [V * C]: where its two ends do not
  /// add up gradients in a group, the stage with the head gives its gradient to the one with the
  /// embedding, which adds it to its own, and takes the weights from there. What is copied out is
  /// there when the work ends.
  virtual void copy_tied_gradient(Ops& ops, std::span<float> out) const = 0;
  virtual void add_tied_gradient(Ops& ops, std::span<const float> values) = 0;
  /// Where both stages are on one device: adds the gradient that `head` has, and then, when all
  /// have added up theirs, gives it the sum.
  virtual void add_tied_gradient(Ops& ops, StageModel& head) = 0;
  virtual void give_tied_gradient(Ops& ops, StageModel& head) = 0;
  virtual void copy_tied_weights(Ops& ops, std::span<float> out) const = 0;
  virtual void take_tied_weights(Ops& ops, std::span<const float> values) = 0;
  /// Sum of squares of the gradients of this stage in float64; a tied gradient counts in the first
  /// stage only. Written when the work ends.
  virtual absl::Status gradient_norm_squared(Ops& ops, double* result) = 0;
  /// One optimizer step on all parameters. A micro-batch that is in flight has its backward with
  /// the weights of its forward: they are kept until then (weight stashing: PipeDream,
  /// SOSP'19, 3.3). FailedPrecondition   if that takes more than `old_versions`.
  virtual absl::Status update(Ops& ops, const UpdateOptions& options) = 0;

  /// Host copies of one parameter's state, in the order of `parameters()`.
  virtual absl::Status read_state(size_t parameter, StateKind kind, std::span<float> out) const = 0;
  virtual absl::Status write_state(size_t parameter, StateKind kind,
                                   std::span<const float> values) = 0;
};

}  // namespace skein::gpu
