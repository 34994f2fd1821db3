#include "gpu/model/stage_model.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/model/head.hpp"
#include "gpu/model/layer.hpp"
#include "gpu/model/memory_estimate.hpp"
#include "gpu/model/parameter_store.hpp"
#include "gpu/model/rotary_turns.hpp"
#include "gpu/model/stage_parameters.hpp"
#include "gpu/model/stash_slots.hpp"
#include "gpu/model/weight_versions.hpp"
#include "gpu/numbers.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

class TransformerStage final : public StageModel {
 public:
  TransformerStage(const StageModelOptions& options, ParameterStore store, Device& device)
      : options_(options),
        shape_{options.model, options.rows, options.seq_len},
        store_(std::move(store)),
        parameters_(find_parameters(options, store_)),
        has_embedding_(options.layers.begin == 0),
        has_positions_(!plans::has_rotary(options.model)),
        has_head_(options.layers.end == plans::layer_count(options.model)),
        head_(shape_, device.info().logits),
        device_(&device) {
    for (size_t b = 0; b < parameters_.blocks.size(); ++b) blocks_.push_back(make_block(shape_));
  }

  absl::Status allocate(Device& device) {
    const int64_t nc = shape_.activations();
    const int64_t blocks = block_count();
    type_ = device.info().activations;
    if (blocks > 0) {
      stash_numbers_ = blocks_.front()->stash_numbers();
      statistics_floats_ = blocks_.front()->statistics_floats();
      pending_numbers_ = blocks_.front()->pending_numbers();
    }
    const int64_t stashed = options_.recompute ? 0 : blocks;
    slot_numbers_ = (blocks + 1 + (has_head_ ? 1 : 0)) * nc + stashed * stash_numbers_;
    slot_statistics_ = stashed * statistics_floats_;
    SKEIN_RETURN_IF_ERROR(slots_.allocate(options_.stash_count, bytes_of(slot_numbers_),
                                          float_bytes(slot_statistics_), device));
    const int64_t layer_scratch = blocks == 0 ? 0 : blocks_.front()->scratch_numbers();
    const int64_t scratch = std::max(layer_scratch, has_head_ ? head_.scratch_numbers() : 0);
    const int64_t statistics =
        std::max(statistics_floats_, has_head_ ? head_.statistics_floats() : 0);
    SKEIN_RETURN_IF_ERROR(versions_.allocate(options_.old_versions, parameters_, store_, device));
    SKEIN_ASSIGN_OR_RETURN(scratch_, device.allocate(bytes_of(scratch)));
    SKEIN_ASSIGN_OR_RETURN(statistics_, device.allocate(float_bytes(statistics)));
    SKEIN_ASSIGN_OR_RETURN(gradient_, device.allocate(bytes_of(nc)));
    SKEIN_ASSIGN_OR_RETURN(pending_, device.allocate(bytes_of(pending_numbers_)));
    SKEIN_ASSIGN_OR_RETURN(passing_, device.allocate(bytes_of(2 * nc + stash_numbers_)));
    if (blocks > 0) {
      SKEIN_ASSIGN_OR_RETURN(turns_, upload_rotary_turns(shape_.model, shape_.seq_len, device));
    }
    return absl::OkStatus();
  }

  const std::vector<plans::ParameterSpec>& parameters() const override { return store_.specs(); }
  bool has_embedding() const override { return has_embedding_; }
  bool has_head() const override { return has_head_; }
  int64_t activation_elements() const override { return shape_.activations(); }
  const DeviceInfo& device_info() const override { return device_->info(); }
  int64_t stash_bytes() const override {
    return bytes_of(slot_numbers_) + float_bytes(slot_statistics_);
  }
  int64_t memory_bytes() const override {
    return store_.bytes() + versions_.bytes() + stash_bytes() * options_.stash_count +
           scratch_.bytes() + statistics_.bytes() + gradient_.bytes() + pending_.bytes() +
           passing_.bytes() + turns_.bytes();
  }

  absl::Status start_step(Ops& ops, double loss_scale) override {
    store_.zero_gradients(ops);
    slots_.release_all();
    loss_scale_ = loss_scale;
    shared_ = kNoParts;
    reset_loss();
    return absl::OkStatus();
  }

  absl::Status start_gradients(Ops& ops) override {
    store_.zero_gradients(ops);
    shared_ = kNoParts;
    return absl::OkStatus();
  }

  absl::Status forward(Ops& ops, int32_t microbatch, const Input& input,
                       const GivenActivations& output) override {
    SKEIN_RETURN_IF_ERROR(check_input(input, output.count));
    if (has_head_ && store_.has_exact_sums() && !slots_.held().empty()) {
      return absl::FailedPreconditionError("exact sums are of one forward of a head at a time");
    }
    SKEIN_ASSIGN_OR_RETURN(StashSlot * slot, slots_.take(microbatch));
    enter(ops, input, slot_input(*slot, 0));
    slot->tokens.assign(input.tokens.begin(), input.tokens.end());
    for (int64_t b = 0; b < block_count(); ++b) {
      block(b).forward(ops, block_parameters(b), block_memory(*slot, b), slot_input(*slot, b + 1));
    }
    const ConstNumbers last = slot_input(*slot, block_count());
    if (has_head_) {
      head_.forward(ops, parameters_.head, last, input.targets, static_cast<float>(loss_scale_),
                    head_memory(), head_gradient(*slot), {&loss_sum_, &loss_tokens_});
    } else {
      give(ops, last, output);
    }
    return absl::OkStatus();
  }

  absl::Status backward(Ops& ops, int32_t microbatch, const TakenActivations& output_gradient,
                        const GivenActivations& input_gradient) override {
    return backward_part(ops, microbatch, options_.layers, output_gradient, input_gradient);
  }

  absl::Status backward_part(Ops& ops, int32_t microbatch, const plans::LayerRange& layers,
                             const TakenActivations& output_gradient,
                             const GivenActivations& input_gradient) override {
    SKEIN_RETURN_IF_ERROR(run_backward(ops, microbatch, layers, output_gradient, input_gradient,
                                       /*with_weights=*/true));
    if (layers.begin != options_.layers.begin) return absl::OkStatus();
    store_.move_to_sums(ops);
    slots_.release(microbatch);
    return absl::OkStatus();
  }

  absl::Status backward_input(Ops& ops, int32_t microbatch, const TakenActivations& output_gradient,
                              const GivenActivations& input_gradient) override {
    if (store_.has_exact_sums()) {
      return absl::FailedPreconditionError("exact sums are of whole backwards");
    }
    return run_backward(ops, microbatch, options_.layers, output_gradient, input_gradient,
                        options_.recompute);
  }

  absl::Status backward_weight(Ops& ops, int32_t microbatch) override {
    return backward_weight_part(ops, microbatch, options_.layers);
  }

  absl::Status backward_weight_part(Ops& ops, int32_t microbatch,
                                    const plans::LayerRange& layers) override {
    SKEIN_RETURN_IF_ERROR(check_part(layers));
    SKEIN_ASSIGN_OR_RETURN(StashSlot * slot, slots_.find(microbatch));
    if (!slot->input_done) {
      return absl::FailedPreconditionError(
          absl::StrCat("micro-batch ", microbatch, " has a W before its I"));
    }
    // With recomputation the stash is gone by now, so the weights' part was done with the input's.
    const BlockRange blocks = blocks_of(layers);
    for (int64_t b = blocks.end - 1; b >= blocks.begin && !options_.recompute; --b) {
      block(b).backward_weight(ops, block_parameters(b, *slot), block_memory(*slot, b),
                               gradient_at(*slot, b + 1, /*is_split=*/true));
    }
    if (layers.begin == options_.layers.begin) slots_.release(microbatch);
    return absl::OkStatus();
  }

  absl::Status evaluate(Ops& ops, const Input& input, const GivenActivations& output) override {
    SKEIN_RETURN_IF_ERROR(check_input(input, output.count));
    const ConstNumbers last = pass_through(ops, input);
    if (has_head_) {
      head_.forward(ops, parameters_.head, last, input.targets, 0.0F, head_memory(), nullptr,
                    {&loss_sum_, &loss_tokens_});
    } else {
      give(ops, last, output);
    }
    return absl::OkStatus();
  }

  double loss_sum() const override { return loss_sum_; }
  int64_t loss_tokens() const override { return loss_tokens_; }
  void reset_loss() override {
    loss_sum_ = 0;
    loss_tokens_ = 0;
  }

  std::span<float> stage_gradients() override { return store_.stage_gradients(); }
  std::span<float> tied_gradients() override { return store_.tied_gradients(); }
  int64_t floats_per_gradient() const override { return store_.floats_per_gradient(); }
  std::span<float> device_stage_gradients() override { return store_.device_stage_gradients(); }
  std::span<float> device_tied_gradients() override { return store_.device_tied_gradients(); }
  absl::Status share_gradients(Ops& ops, const plans::LayerRange& layers,
                               const GradientParts& parts) override {
    SKEIN_RETURN_IF_ERROR(check_part(layers));
    const auto first = static_cast<size_t>(layers.begin - options_.layers.begin);
    const auto last = static_cast<size_t>(layers.end - options_.layers.begin);
    store_.show_gradients(ops, parameters_.layer_begins[first], parameters_.layer_begins[last],
                          parts);
    shared_ = parts;
    return absl::OkStatus();
  }
  void copy_tied_gradient(Ops& ops, std::span<float> out) const override {
    store_.copy_tied_gradient(ops, out);
  }
  void add_tied_gradient(Ops& ops, std::span<const float> values) override {
    store_.add_tied_gradient(ops, values);
  }
  void add_tied_gradient(Ops& ops, StageModel& head) override {
    const std::span<float> own = device_tied_gradients();
    const std::span<float> others = head.device_tied_gradients();
    SKEIN_CHECK(own.size() == others.size()) << "the stages share no embedding";
    const auto floats = static_cast<int64_t>(own.size());
    if (store_.has_exact_sums()) {
      ops.add_sums(reinterpret_cast<const double*>(others.data()),
                   reinterpret_cast<double*>(own.data()), floats / store_.floats_per_gradient());
    } else {
      ops.add(own.data(), others.data(), own.data(), floats);
    }
  }
  void give_tied_gradient(Ops& ops, StageModel& head) override {
    const std::span<float> own = device_tied_gradients();
    const std::span<float> others = head.device_tied_gradients();
    SKEIN_CHECK(own.size() == others.size()) << "the stages share no embedding";
    ops.copy(own.data(), others.data(), static_cast<int64_t>(own.size()));
  }
  void copy_tied_weights(Ops& ops, std::span<float> out) const override {
    store_.copy_tied_weights(ops, out);
  }
  void take_tied_weights(Ops& ops, std::span<const float> values) override {
    store_.take_tied_weights(ops, values);
  }
  absl::Status gradient_norm_squared(Ops& ops, double* result) override {
    store_.take_gradients(ops, shared_);
    shared_ = kNoParts;
    store_.round_sums(ops);
    *result = 0;
    store_.add_norm_squared(ops, result);
    return absl::OkStatus();
  }
  absl::Status update(Ops& ops, const UpdateOptions& options) override {
    SKEIN_RETURN_IF_ERROR(versions_.keep(ops, slots_));
    store_.round_tied_copy(ops);
    store_.update(ops, options_.optimizer, options);
    return absl::OkStatus();
  }

  absl::Status read_state(size_t parameter, StateKind kind, std::span<float> out) const override {
    return store_.read(*device_, parameter, kind, out);
  }
  absl::Status write_state(size_t parameter, StateKind kind,
                           std::span<const float> values) override {
    return store_.write(*device_, parameter, kind, values);
  }

 private:
  /// Numbers in `blocks_`.
  struct BlockRange {
    int64_t begin = 0;
    int64_t end = 0;
  };
  BlockRange blocks_of(const plans::LayerRange& layers) const {
    const int64_t first = options_.layers.begin + (has_embedding_ ? 1 : 0);  // Layer of block 0.
    return {std::max<int64_t>(layers.begin - first, 0),
            std::min(layers.end - first, block_count())};
  }

  int64_t block_count() const { return static_cast<int64_t>(blocks_.size()); }
  const Layer& block(int64_t b) const { return *blocks_[static_cast<size_t>(b)]; }
  const LayerParameters& block_parameters(int64_t b) const {
    return parameters_.blocks[static_cast<size_t>(b)];
  }
  /// With the weights that the forward had.
  const LayerParameters& block_parameters(int64_t b, const StashSlot& slot) const {
    return slot.old_version ? versions_.block(*slot.old_version, static_cast<size_t>(b))
                            : block_parameters(b);
  }

  int64_t bytes_of(int64_t numbers) const { return numbers * gpu::bytes_of(type_); }

  Numbers slot_input(const StashSlot& slot, int64_t b) const {
    return slot.memory.numbers(type_) + b * shape_.activations();
  }
  Numbers head_gradient(const StashSlot& slot) const {
    return slot.memory.numbers(type_) + (slot_numbers_ - shape_.activations());
  }
  /// The gradient of the input of block `b`, or of the last one's output, where nobody copies it:
  /// two places by turns, of which one is the pending memory's, or that of each block in a split
  /// backward. The head leaves it in the slot.
  Numbers gradient_at(const StashSlot& slot, int64_t b, bool is_split) const {
    if (has_head_ && b == block_count()) return head_gradient(slot);
    if (is_split && b > 0) return slot.pending.numbers(type_) + (b - 1) * pending_numbers_;
    return b % 2 == 0 ? gradient_.numbers(type_) : pending_.numbers(type_);
  }
  Head::Memory head_memory() const { return {scratch_.numbers(type_), statistics_.floats()}; }
  /// The memory of what keeps nothing: all blocks have the same.
  Layer::Memory passing_memory(ConstNumbers input) const {
    return {input,
            passing_.numbers(type_) + 2 * shape_.activations(),
            statistics_.floats(),
            pending_.numbers(type_),
            scratch_.numbers(type_),
            turns_.floats()};
  }
  Layer::Memory block_memory(const StashSlot& slot, int64_t b) const {
    Layer::Memory memory = passing_memory(slot_input(slot, b));
    if (!options_.recompute) {
      memory.stash = slot_input(slot, block_count() + 1) + b * stash_numbers_;
      memory.statistics = slot.statistics.floats() + b * statistics_floats_;
    }
    if (slot.pending.data() != nullptr) {
      memory.pending = slot.pending.numbers(type_) + b * pending_numbers_;
    }
    return memory;
  }

  absl::Status check_input(const Input& input, int64_t output) const {
    const auto n = static_cast<size_t>(shape_.tokens());
    const int64_t nc = shape_.activations();
    const bool fits = input.tokens.size() == (has_embedding_ ? n : 0) &&
                      input.targets.size() == (has_head_ ? n : 0) &&
                      input.activations.count == (has_embedding_ ? 0 : nc) &&
                      output == (has_head_ ? 0 : nc);
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a micro-batch of ", input.tokens.size(), " tokens, ", input.targets.size(),
                     " targets, ", input.activations.count, " activations and ", output,
                     " outputs does not fit a stage of ", n, " tokens and ", nc, " activations"));
  }

  static void take(Ops& ops, const TakenActivations& from, Numbers to) {
    if (from.numbers.type() != NumberType::kFloat32) return ops.copy(from.numbers, to, from.count);
    ops.copy_in({from.numbers.floats(), static_cast<size_t>(from.count)}, to);
  }
  static void give(Ops& ops, ConstNumbers from, const GivenActivations& to) {
    if (to.numbers.type() != NumberType::kFloat32) return ops.copy(from, to.numbers, to.count);
    ops.copy_out(from, {to.numbers.floats(), static_cast<size_t>(to.count)});
  }

  void enter(Ops& ops, const Input& input, Numbers x) {
    store_.refresh(ops);
    if (has_embedding_) {
      ops.embedding_forward({input.tokens, shape_.seq_len, shape_.model.channels}, store_.weight(0),
                            has_positions_ ? store_.weight(1) : nullptr, x);
    } else {
      take(ops, input.activations, x);
    }
  }

  /// Runs all blocks without keeping anything; returns where the last output is.
  ConstNumbers pass_through(Ops& ops, const Input& input) {
    Numbers x = passing_.numbers(type_);
    Numbers y = x + shape_.activations();
    enter(ops, input, x);
    for (int64_t b = 0; b < block_count(); ++b) {
      block(b).forward(ops, block_parameters(b), passing_memory(x), y);
      std::swap(x, y);
    }
    return x;
  }

  absl::Status check_part(const plans::LayerRange& layers) const {
    if (layers.begin >= options_.layers.begin && layers.begin < layers.end &&
        layers.end <= options_.layers.end) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "layers ", layers.begin, "..", layers.end, " are no part of a stage of layers ",
        options_.layers.begin, "..", options_.layers.end));
  }

  absl::Status run_backward(Ops& ops, int32_t microbatch, const plans::LayerRange& layers,
                            const TakenActivations& output_gradient,
                            const GivenActivations& input_gradient, bool with_weights) {
    SKEIN_RETURN_IF_ERROR(check_part(layers));
    const bool enters = layers.end == options_.layers.end;
    const bool leaves = layers.begin == options_.layers.begin;
    const int64_t nc = shape_.activations();
    if (output_gradient.count != (has_head_ || !enters ? 0 : nc) ||
        input_gradient.count != (has_embedding_ || !leaves ? 0 : nc)) {
      return absl::InvalidArgumentError(absl::StrCat("gradients of ", output_gradient.count,
                                                     " and ", input_gradient.count,
                                                     " elements do not fit a stage of ", nc));
    }
    SKEIN_ASSIGN_OR_RETURN(StashSlot * slot, slots_.find(microbatch));
    if (!with_weights && slot->pending.data() == nullptr) {
      SKEIN_ASSIGN_OR_RETURN(slot->pending,
                             device_->allocate(bytes_of(block_count() * pending_numbers_)));
    }
    const auto at = [&](int64_t b) { return gradient_at(*slot, b, !with_weights); };
    if (enters && !has_head_) take(ops, output_gradient, at(block_count()));
    const BlockRange blocks = blocks_of(layers);
    for (int64_t b = blocks.end - 1; b >= blocks.begin; --b) {
      const Layer::Memory memory = block_memory(*slot, b);
      if (options_.recompute) {
        block(b).forward(ops, block_parameters(b, *slot), memory, passing_.numbers(type_));
      }
      block(b).backward_input(ops, block_parameters(b, *slot), memory, at(b + 1), at(b));
      if (with_weights)
        block(b).backward_weight(ops, block_parameters(b, *slot), memory, at(b + 1));
    }
    if (leaves) leave(ops, *slot, at(0), input_gradient);
    slot->input_done = leaves;
    return absl::OkStatus();
  }

  void leave(Ops& ops, const StashSlot& slot, ConstNumbers gradient,
             const GivenActivations& input_gradient) {
    if (has_embedding_) {
      ops.embedding_backward({slot.tokens, shape_.seq_len, shape_.model.channels}, gradient,
                             store_.gradient(0), has_positions_ ? store_.gradient(1) : nullptr);
    } else {
      give(ops, gradient, input_gradient);
    }
  }

  StageModelOptions options_;
  LayerShape shape_;
  ParameterStore store_;
  StageParameters parameters_;
  bool has_embedding_;
  bool has_positions_;  // Learned ones.
  bool has_head_;
  Head head_;
  std::vector<std::unique_ptr<Layer>> blocks_;
  Device* device_;
  static constexpr GradientParts kNoParts{false, false};
  GradientParts shared_ = kNoParts;  // That the host has of this step.

  StashSlots slots_;
  WeightVersions versions_;
  NumberType type_ = NumberType::kFloat32;  // The type of activations and their gradients.
  int64_t slot_numbers_ = 0, slot_statistics_ = 0;
  int64_t stash_numbers_ = 0, statistics_floats_ = 0;  // What a block stashes.
  int64_t pending_numbers_ = 0;
  Buffer scratch_, statistics_, gradient_, pending_, passing_, turns_;

  double loss_scale_ = 0;
  double loss_sum_ = 0;
  int64_t loss_tokens_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StageModel>> StageModel::create(const StageModelOptions& options,
                                                               Device& device) {
  const bool fits = options.rows >= 1 && options.seq_len >= 1 && options.stash_count >= 1 &&
                    options.old_versions >= 0 && options.seq_len <= options.model.positions &&
                    options.layers.begin >= 0 && options.layers.begin < options.layers.end &&
                    options.layers.end <= plans::layer_count(options.model);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no stage of layers ", options.layers.begin, "..", options.layers.end, ", ", options.rows,
        " rows of ", options.seq_len, " tokens and ", options.stash_count, " stashes"));
  }
  absl::StatusOr<ParameterStore> store = ParameterStore::create(options, device);
  if (!store.ok()) return with_estimate(store.status(), options, device.info());
  auto stage = std::make_unique<TransformerStage>(options, *std::move(store), device);
  const absl::Status allocated = stage->allocate(device);
  if (!allocated.ok()) return with_estimate(allocated, options, device.info());
  return std::unique_ptr<StageModel>(std::move(stage));
}

}  // namespace skein::gpu
