#include "gpu/model/stage_parameters.hpp"

namespace skein::gpu {
namespace {

LayerParameters block_at(const ParameterStore& store, size_t first, size_t count) {
  LayerParameters parameters;
  for (size_t i = first; i < first + count; ++i) {
    parameters.weights.push_back(store.weight(i));
    parameters.operands.push_back(store.operand(i));
    parameters.gradients.push_back(store.gradient(i));
  }
  return parameters;
}

Head::Parameters head_at(const ParameterStore& store, size_t first, size_t count, bool has_bias) {
  Head::Parameters parameters{};
  const size_t norm_count = has_bias ? 2 : 1;
  // A tied head in the stage of the embedding shares its matrix, parameter 0.
  const size_t matrix = count > norm_count ? first + norm_count : 0;
  parameters.norm_weight = store.weight(first);
  parameters.dnorm_weight = store.gradient(first);
  parameters.matrix = store.operand(matrix);
  parameters.dmatrix = store.gradient(matrix);
  if (has_bias) {
    parameters.norm_bias = store.weight(first + 1);
    parameters.dnorm_bias = store.gradient(first + 1);
  }
  return parameters;
}

}  // namespace

StageParameters find_parameters(const StageModelOptions& options, const ParameterStore& store) {
  StageParameters found;
  size_t next = 0;
  for (int64_t layer = options.layers.begin; layer < options.layers.end; ++layer) {
    const size_t count = plans::layer_parameters(options.model, layer, options.layers).size();
    found.layer_begins.push_back(next);
    if (plans::layer_kind(options.model, layer) == plans::LayerKind::kBlock) {
      if (found.blocks.empty()) found.first_block = next;
      found.blocks.push_back(block_at(store, next, count));
    } else if (plans::layer_kind(options.model, layer) == plans::LayerKind::kHead) {
      found.head = head_at(store, next, count, !plans::has_rms_norm(options.model));
    }
    next += count;
  }
  found.layer_begins.push_back(next);
  return found;
}

}  // namespace skein::gpu
