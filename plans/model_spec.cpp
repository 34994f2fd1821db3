#include "plans/model_spec.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

ParameterSpec matrix(std::string name, std::vector<int64_t> shape, double std) {
  return {std::move(name), std::move(shape), std, 0, /*decays=*/true, false};
}
ParameterSpec constant(std::string name, int64_t count, double value) {
  return {std::move(name), {count}, 0, value, /*decays=*/false, false};
}

std::vector<ParameterSpec> block_parameters(const ModelSpec& model, int64_t block) {
  const int64_t c = model.channels;
  const std::string h = absl::StrCat("transformer.h.", block, ".");
  // Residual projections start smaller, so that depth does not grow the variance (GPT-2, 2.3).
  const double residual_std = model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
  return {constant(h + "ln_1.weight", c, 1),
          constant(h + "ln_1.bias", c, 0),
          matrix(h + "attn.c_attn.weight", {c, 3 * c}, model.init_std),
          constant(h + "attn.c_attn.bias", 3 * c, 0),
          matrix(h + "attn.c_proj.weight", {c, c}, residual_std),
          constant(h + "attn.c_proj.bias", c, 0),
          constant(h + "ln_2.weight", c, 1),
          constant(h + "ln_2.bias", c, 0),
          matrix(h + "mlp.c_fc.weight", {c, 4 * c}, model.init_std),
          constant(h + "mlp.c_fc.bias", 4 * c, 0),
          matrix(h + "mlp.c_proj.weight", {4 * c, c}, residual_std),
          constant(h + "mlp.c_proj.bias", c, 0)};
}

struct Flavor {
  const char* name;
  int64_t vocab_size, layers, heads, channels;
};
constexpr std::array kFlavors = {
    Flavor{"byte-tiny", 256, 2, 4, 64},         Flavor{"byte-small", 256, 6, 8, 256},
    Flavor{"byte-medium", 256, 8, 8, 512},      Flavor{"gpt2", 50257, 12, 12, 768},
    Flavor{"gpt2-medium", 50257, 24, 16, 1024}, Flavor{"gpt2-large", 50257, 36, 20, 1280},
    Flavor{"gpt2-xl", 50257, 48, 25, 1600}};

}  // namespace

int64_t layer_count(const ModelSpec& model) { return model.layers + 2; }

LayerKind layer_kind(const ModelSpec& model, int64_t layer) {
  SKEIN_CHECK(layer >= 0 && layer < layer_count(model)) << "layer " << layer;
  if (layer == 0) return LayerKind::kEmbedding;
  return layer == model.layers + 1 ? LayerKind::kHead : LayerKind::kBlock;
}

int64_t element_count(const ParameterSpec& parameter) {
  int64_t count = 1;
  for (int64_t extent : parameter.shape) count *= extent;
  return count;
}

std::vector<ParameterSpec> layer_parameters(const ModelSpec& model, int64_t layer,
                                            const LayerRange& range) {
  const int64_t v = model.vocab_size, c = model.channels;
  switch (layer_kind(model, layer)) {
    case LayerKind::kEmbedding:
      return {matrix("transformer.wte.weight", {v, c}, model.init_std),
              matrix("transformer.wpe.weight", {model.positions, c}, model.init_std)};
    case LayerKind::kBlock:
      return block_parameters(model, layer - 1);
    case LayerKind::kHead:
      break;
  }
  std::vector<ParameterSpec> head = {constant("transformer.ln_f.weight", c, 1),
                                     constant("transformer.ln_f.bias", c, 0)};
  if (!model.tied_head) {
    head.push_back(matrix("lm_head.weight", {v, c}, model.init_std));
  } else if (!range.contains(0)) {
    head.push_back(matrix("transformer.wte.weight", {v, c}, model.init_std));
    head.back().tied_copy = true;
  }
  return head;
}

std::vector<ParameterSpec> range_parameters(const ModelSpec& model, const LayerRange& range) {
  std::vector<ParameterSpec> all;
  for (int64_t layer = range.begin; layer < range.end; ++layer) {
    for (ParameterSpec& parameter : layer_parameters(model, layer, range)) {
      all.push_back(std::move(parameter));
    }
  }
  return all;
}

int64_t parameter_count(const ModelSpec& model) {
  int64_t count = 0;
  for (const ParameterSpec& parameter : range_parameters(model, {0, layer_count(model)})) {
    count += element_count(parameter);
  }
  return count;
}

LayerFlops layer_flops(const ModelSpec& model, int64_t layer, int64_t samples, int64_t seq_len) {
  const double tokens = static_cast<double>(samples) * static_cast<double>(seq_len);
  const double c = static_cast<double>(model.channels);
  LayerFlops flops;
  switch (layer_kind(model, layer)) {
    case LayerKind::kEmbedding:
      flops.forward = tokens * c;  // One addition per element.
      flops.backward_weight = 2 * tokens * c;
      break;
    case LayerKind::kBlock: {
      const double products = 2 * tokens * 12 * c * c;  // 3 + 1 + 4 + 4 matrices of C x C.
      // Scores and weighted values over the causal half of T x T, for every head.
      const double attention = 2 * tokens * c * (static_cast<double>(seq_len) + 1);
      flops.forward = products + attention;
      flops.backward_input = products + 2.5 * attention;  // Probabilities are computed again.
      flops.backward_weight = products;
      break;
    }
    case LayerKind::kHead: {
      const double products = 2 * tokens * c * static_cast<double>(model.vocab_size);
      flops.forward = flops.backward_input = flops.backward_weight = products;
      break;
    }
  }
  return flops;
}

absl::Status apply_flavor(ModelSpec& model) {
  std::string names;
  for (const Flavor& flavor : kFlavors) {
    if (model.flavor == flavor.name) {
      model.vocab_size = flavor.vocab_size;
      model.layers = flavor.layers;
      model.heads = flavor.heads;
      model.channels = flavor.channels;
      return absl::OkStatus();
    }
    absl::StrAppend(&names, names.empty() ? "" : ", ", flavor.name);
  }
  return absl::NotFoundError(
      absl::StrCat("model.flavor = \"", model.flavor, "\" does not exist; there are ", names));
}

}  // namespace skein::plans
