#include "gpu/profile/measure_profile.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/model/memory_estimate.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

using plans::LayerKind;

StageModelOptions options_of(const plans::JobSpec& job, const plans::LayerRange& layers,
                             int64_t rows) {
  StageModelOptions options;
  options.model = job.model;
  options.layers = layers;
  options.optimizer = job.optimizer;
  options.rows = rows;
  options.seq_len = job.training.seq_len;
  options.seed = job.debug.seed;
  return options;
}

/// One layer on its own, with random data around it.
class LayerBench {
 public:
  static absl::StatusOr<std::unique_ptr<LayerBench>> create(const plans::JobSpec& job,
                                                            int64_t layer, int64_t rows,
                                                            Device& device) {
    auto bench = std::make_unique<LayerBench>(device);
    const StageModelOptions options = options_of(job, {layer, layer + 1}, rows);
    const bool is_block = plans::layer_kind(job.model, layer) == LayerKind::kBlock;
    bench->share_ =
        is_block ? static_cast<double>(rows) / static_cast<double>(job.training.micro_batch_size)
                 : 0;
    bench->update_share_ = is_block ? 1 : 0;
    SKEIN_ASSIGN_OR_RETURN(bench->model_, StageModel::create(options, device));
    const auto tokens = static_cast<size_t>(rows * job.training.seq_len);
    plans::Rng rng(job.debug.seed);
    for (size_t i = 0; i < tokens; ++i) {
      const auto vocab_size = static_cast<uint64_t>(job.model.vocab_size);
      bench->tokens_.push_back(static_cast<int32_t>(rng.below(vocab_size)));
    }
    std::vector<float> values(static_cast<size_t>(bench->model_->activation_elements()));
    for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5);
    // On the device, as between two layers of a stage.
    const int64_t bytes = bench->model_->activation_elements() * 4;
    SKEIN_ASSIGN_OR_RETURN(bench->activations_memory_, device.allocate(bytes));
    SKEIN_ASSIGN_OR_RETURN(bench->output_memory_, device.allocate(bytes));
    bench->activations_ = {bench->activations_memory_.floats(), values.size()};
    bench->output_ = {bench->output_memory_.floats(), values.size()};
    SKEIN_RETURN_IF_ERROR(device.upload(values, bench->activations_memory_.floats()));
    return bench;
  }

  explicit LayerBench(Device& device) : device_(device) {}

  const StageModel& model() const { return *model_; }

  /// The fastest of `repeats` rounds of F, I and W.
  absl::StatusOr<plans::LayerTimes> times(int repeats) {
    plans::LayerTimes best{kNever, kNever, kNever};
    for (int round = 0; round <= repeats; ++round) {
      is_warm_ = round > 0;
      plans::LayerTimes taken;
      SKEIN_ASSIGN_OR_RETURN(taken.forward_us, run(WorkKind::kForward, share_,
                                                   [this](Ops& ops) { return forward(ops); }));
      SKEIN_ASSIGN_OR_RETURN(taken.backward_input_us,
                             run(WorkKind::kBackwardInput, share_, [this](Ops& ops) {
                               return model_->backward_input(ops, 0, gradient(), input_gradient());
                             }));
      SKEIN_ASSIGN_OR_RETURN(taken.backward_weight_us,
                             run(WorkKind::kBackwardWeight, share_,
                                 [this](Ops& ops) { return model_->backward_weight(ops, 0); }));
      if (!is_warm_) continue;
      best.forward_us = std::min(best.forward_us, taken.forward_us);
      best.backward_input_us = std::min(best.backward_input_us, taken.backward_input_us);
      best.backward_weight_us = std::min(best.backward_weight_us, taken.backward_weight_us);
    }
    return best;
  }

  absl::StatusOr<double> update_us(int repeats) {
    double best = kNever;
    for (int round = 0; round <= repeats; ++round) {
      is_warm_ = round > 0;
      SKEIN_ASSIGN_OR_RETURN(const double taken,
                             run(WorkKind::kUpdate, update_share_,
                                 [this](Ops& ops) { return model_->update(ops, {}); }));
      if (is_warm_) best = std::min(best, taken);
    }
    return best;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  absl::Status forward(Ops& ops) {
    SKEIN_RETURN_IF_ERROR(model_->start_step(ops, 1.0));
    StageModel::Input input;
    if (model_->has_embedding()) input.tokens = tokens_;
    if (model_->has_head()) input.targets = tokens_;
    if (!model_->has_embedding()) input.activations = activations_;
    return model_->forward(ops, 0, input,
                           model_->has_head() ? std::span<float>() : std::span<float>(output_));
  }
  std::span<const float> gradient() const {
    return model_->has_head() ? std::span<const float>() : std::span<const float>(activations_);
  }
  std::span<float> input_gradient() {
    return model_->has_embedding() ? std::span<float>() : std::span<float>(output_);
  }

  /// Microseconds from submission to the end of the work.
  absl::StatusOr<double> run(WorkKind kind, double share, std::function<absl::Status(Ops&)> body) {
    Work work;
    work.kind = is_warm_ ? kind : WorkKind::kWarmUp;
    work.share = share;
    work.run = std::move(body);
    // Another job may have the device first.
    auto start = std::chrono::steady_clock::now();
    work.on_begin = [&start] { start = std::chrono::steady_clock::now(); };
    SKEIN_RETURN_IF_ERROR(device_.run(std::move(work)));
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
  }

  Device& device_;
  std::unique_ptr<StageModel> model_;
  double share_ = 0;
  double update_share_ = 0;
  bool is_warm_ = false;  // Else caches are cold, and libraries choose their kernels.
  std::vector<int32_t> tokens_;
  Buffer activations_memory_, output_memory_;
  std::span<float> activations_, output_;
};

int64_t weight_bytes(const StageModel& model) {
  int64_t elements = 0;
  for (const plans::ParameterSpec& parameter : model.parameters()) {
    elements += plans::element_count(parameter);
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

std::string layer_name(const plans::ModelSpec& model, int64_t layer) {
  switch (plans::layer_kind(model, layer)) {
    case LayerKind::kEmbedding:
      return "embedding";
    case LayerKind::kBlock:
      return absl::StrCat("block ", layer - 1);
    case LayerKind::kHead:
      return "head";
  }
  return "";
}

/// The bytes as `plans::LayerProfile` counts them, from one layer's stage.
void fill_bytes(const plans::JobSpec& job, int64_t layer, int64_t rows, const StageModel& model,
                plans::LayerProfile& to) {
  const int64_t sent = model.activation_elements() * static_cast<int64_t>(sizeof(float));
  const int64_t kept = model.activation_elements() * bytes_of(model.device_info().activations);
  const bool is_block = plans::layer_kind(job.model, layer) == LayerKind::kBlock;
  to.activation_row_bytes = sent / rows;
  // A slot holds the layer's input as well; a block's also its output, for the next one.
  to.stash_row_bytes = (is_block ? model.stash_bytes() - kept : kept) / rows;
  to.parameter_bytes = weight_bytes(model);
}

}  // namespace

int64_t profile_bytes(const plans::JobSpec& job, const Device& device,
                      const std::vector<int64_t>& rows) {
  int64_t most = 0;
  // Blocks are alike.
  for (int64_t layer : {int64_t{0}, int64_t{1}, plans::layer_count(job.model) - 1}) {
    const StageModelOptions options = options_of(job, {layer, layer + 1}, rows.back());
    const MemoryEstimate estimate = estimate_memory(options, device.info());
    most = std::max(most, estimate.total_bytes() + estimate.split_bytes);
  }
  // And what goes into a layer and comes out of it.
  return most + 2 * rows.back() * job.training.seq_len * job.model.channels *
                    static_cast<int64_t>(sizeof(float));
}

int64_t working_bytes(const plans::JobSpec& job, const Device& device, int64_t rows) {
  const StageModelOptions options = options_of(job, {0, plans::layer_count(job.model)}, rows);
  return estimate_memory(options, device.info()).working_bytes;
}

int64_t rounding_bytes(const plans::JobSpec& job, const Device& device, int64_t rows) {
  StageModelOptions options = options_of(job, {0, plans::layer_count(job.model)}, rows);
  // The planner halves them where none else fit, down to one row.
  const bool may_halve = job.parallelism.pipeline_parallel_degree == plans::kAutoDegree;
  const int64_t microbatches =
      may_halve ? job.training.global_batch_size : plans::microbatch_count(job);
  // Twice the stages, of which there are no more than layers, is what filling all bubbles takes.
  const int64_t in_flight = microbatches * job.sync.claims_in_flight;
  options.stash_count =
      static_cast<int32_t>(std::min(in_flight, 2 * plans::layer_count(job.model)));
  options.old_versions = static_cast<int32_t>(job.sync.claims_in_flight - 1);
  options.exact_summands = job.tokens.reproducible ? 1 : 0;
  return rounding_bytes(options, device.info());
}

absl::StatusOr<plans::Profile> measure_profile(const plans::JobSpec& job, Device& device,
                                               const std::vector<int64_t>& rows, int repeats) {
  plans::Profile profile;
  profile.source = "measured";
  profile.device = device.info().name;
  profile.rows = rows;
  profile.state_factor = job.optimizer.name == "sgd" ? 3 : 4;
  if (device.info().activations != NumberType::kFloat32) {
    const auto kept = static_cast<double>(bytes_of(device.info().activations));
    profile.activation_factor = kept / sizeof(float);
    profile.state_factor += profile.activation_factor;  // Weights as products read them.
  }
  const int64_t layers = plans::layer_count(job.model);
  profile.layers.resize(static_cast<size_t>(layers));
  for (int64_t layer = 0; layer < layers; ++layer) {
    plans::LayerProfile& own = profile.layers[static_cast<size_t>(layer)];
    // Blocks are alike: the first one speaks for all.
    if (plans::layer_kind(job.model, layer) == LayerKind::kBlock && layer > 1) {
      own = profile.layers[1];
    } else {
      for (int64_t count : rows) {
        SKEIN_ASSIGN_OR_RETURN(const auto bench, LayerBench::create(job, layer, count, device));
        SKEIN_ASSIGN_OR_RETURN(own.at.emplace_back(), bench->times(repeats));
        fill_bytes(job, layer, count, bench->model(), own);
        if (layer != 1 || count != rows.front()) continue;
        SKEIN_ASSIGN_OR_RETURN(const double update_us, bench->update_us(repeats));
        profile.update_us_per_byte = update_us / static_cast<double>(own.parameter_bytes);
      }
    }
    own.name = layer_name(job.model, layer);
  }
  if (job.model.tied_head) {
    profile.tied_bytes =
        job.model.vocab_size * job.model.channels * static_cast<int64_t>(sizeof(float));
  }
  SKEIN_RETURN_IF_ERROR(plans::validate(profile));
  return profile;
}

}  // namespace skein::gpu
