#include "gpu/model/memory_estimate.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/caching_allocator.hpp"
#include "gpu/model/head.hpp"
#include "gpu/model/layer.hpp"
#include "gpu/numbers.hpp"
#include "plans/profile/estimate.hpp"

namespace skein::gpu {
namespace {

/// That the stage keeps beside parameters and stashes, for all layers and micro-batches together.
int64_t shared_bytes(const StageModelOptions& options, const DeviceInfo& device) {
  const LayerShape shape{options.model, options.rows, options.seq_len};
  const bool has_head = options.layers.end == plans::layer_count(options.model);
  const Head head(shape, device.logits);
  const bool has_blocks =
      options.layers.end - options.layers.begin > (options.layers.begin == 0) + (has_head ? 1 : 0);
  int64_t scratch = has_head ? head.scratch_numbers() : 0;
  int64_t statistics = has_head ? head.statistics_floats() : 0;
  int64_t blocks = 0;
  if (has_blocks) {
    const std::unique_ptr<Layer> block = make_block(shape);
    scratch = std::max(scratch, block->scratch_numbers());
    statistics = std::max(statistics, block->statistics_floats());
    blocks = block->pending_numbers() + block->stash_numbers();
  }
  int64_t floats = statistics;
  if (has_blocks && plans::has_rotary(options.model)) {
    floats += options.seq_len * plans::head_size(options.model);  // `rotary_turns`.
  }
  // A gradient on its way, and an activation that passes through without a stash, twice.
  return (scratch + blocks + 3 * shape.activations()) * bytes_of(device.activations) +
         float_bytes(floats);
}

/// Numbers in the parameters of the stage's blocks.
int64_t block_parameters(const StageModelOptions& options) {
  int64_t count = 0;
  for (int64_t layer = options.layers.begin; layer < options.layers.end; ++layer) {
    if (plans::layer_kind(options.model, layer) != plans::LayerKind::kBlock) continue;
    for (const auto& spec : plans::layer_parameters(options.model, layer, options.layers)) {
      count += plans::element_count(spec);
    }
  }
  return count;
}

int64_t block_count(const StageModelOptions& options) {
  int64_t count = 0;
  for (int64_t layer = options.layers.begin; layer < options.layers.end; ++layer) {
    if (plans::layer_kind(options.model, layer) == plans::LayerKind::kBlock) ++count;
  }
  return count;
}

/// What a device keeps of each number.
plans::NumberBytes number_bytes(NumberType type) {
  if (type == NumberType::kFloat32) return {};
  return {bytes_of(type), bytes_of(type)};
}

}  // namespace

MemoryEstimate estimate_memory(const StageModelOptions& options, const DeviceInfo& device) {
  const NumberType type = device.activations;
  // Sizes do not depend on speeds.
  const plans::NumberBytes bytes = number_bytes(type);
  const plans::Profile profile = plans::estimate_profile(
      options.model, options.seq_len, {options.rows}, options.optimizer, 1, 1, bytes);
  const plans::StageMemory stage =
      plans::stage_memory(profile, options.layers, options.rows, options.recompute);
  MemoryEstimate estimate;
  estimate.state_bytes = stage.state_bytes;
  estimate.stash_bytes = stage.stash_bytes * options.stash_count;
  estimate.extra_bytes = stage.extra_bytes;
  // The layer that is computed again is among what the stage shares. With SGD a second moment is
  // allocated and not used.
  int64_t parameters = 0;
  for (const auto& spec : plans::range_parameters(options.model, options.layers)) {
    parameters += plans::element_count(spec);
  }
  estimate.version_bytes =
      options.old_versions * (float_bytes(1) + bytes.weight_copy) * block_parameters(options);
  if (block_parameters(options) > 0) {
    const LayerShape shape{options.model, options.rows, options.seq_len};
    estimate.split_bytes = options.stash_count * block_count(options) *
                           make_block(shape)->pending_numbers() * bytes_of(type);
  }
  estimate.working_bytes = shared_bytes(options, device) - estimate.extra_bytes +
                           4 * float_bytes(parameters) + bytes.weight_copy * parameters -
                           estimate.state_bytes;
  if (options.exact_summands > 0) estimate.working_bytes += 2 * float_bytes(parameters);
  return estimate;
}

int64_t rounding_bytes(const StageModelOptions& options, const DeviceInfo& device) {
  if (device.memory_bytes == 0) return 0;
  const MemoryEstimate all = estimate_memory(options, device);
  int64_t parameters = 0;
  for (const auto& spec : plans::range_parameters(options.model, options.layers)) {
    parameters += plans::element_count(spec);
  }
  const bool has_copy = device.activations != NumberType::kFloat32;
  const int64_t weights = CachingAllocator::rounding_max(float_bytes(parameters));
  // Weights, gradients, two moments, and the copy of the weights that products read.
  int64_t bytes = (has_copy ? 5 : 4) * weights;
  if (options.exact_summands > 0) {
    bytes += CachingAllocator::rounding_max(2 * float_bytes(parameters));
  }
  bytes += options.old_versions * (has_copy ? 2 : 1) * weights;
  if (const int64_t stashes = options.stash_count; stashes > 0) {
    const int64_t blocks = block_count(options);
    const int64_t statistics =
        blocks > 0 ? make_block({options.model, options.rows, options.seq_len})->statistics_floats()
                   : 0;
    bytes += stashes * (CachingAllocator::rounding_max(all.stash_bytes / stashes) +
                        CachingAllocator::rounding_max(float_bytes(blocks * statistics)));
  }
  // Scratch, statistics, a gradient, what is pending, what passes and the table of rotary turns.
  bytes += 6 * CachingAllocator::rounding_max(shared_bytes(options, device));
  return bytes + CachingAllocator::rounding_max(all.split_bytes);
}

absl::Status with_estimate(const absl::Status& why, const StageModelOptions& options,
                           const DeviceInfo& device) {
  if (!absl::IsResourceExhausted(why)) return why;
  const MemoryEstimate estimate = estimate_memory(options, device);
  return absl::ResourceExhaustedError(absl::StrCat(
      std::string(why.message()), "; the plan counts on ", estimate.planned_bytes(),
      " bytes for the stage of layers ", options.layers.begin, "..", options.layers.end, " (",
      estimate.state_bytes, " for weights, gradients and moments, ", estimate.stash_bytes,
      " for stashes of ", options.stash_count, " micro-batches of ", options.rows, " x ",
      options.seq_len, " tokens, ", estimate.extra_bytes, " to compute a layer again, ",
      estimate.version_bytes, " for ", options.old_versions, " older versions of weights), and ",
      estimate.working_bytes, " more are worked in"));
}

}  // namespace skein::gpu
