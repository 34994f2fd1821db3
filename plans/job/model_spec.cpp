#include "plans/job/model_spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/job/block_parameters.hpp"

namespace skein::plans {
namespace {

ParameterSpec matrix(std::string name, std::vector<int64_t> shape, double std) {
  return {std::move(name), std::move(shape), std, 0, /*decays=*/true, false};
}
ParameterSpec constant(std::string name, int64_t count, double value) {
  return {std::move(name), {count}, 0, value, /*decays=*/false, false};
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

/// A published model of Llama's kind: what its config.json says.
struct PublishedFlavor {
  Flavor sizes;
  const char* family;
  int64_t kv_heads, intermediate_size, positions;
  double norm_epsilon, rope_theta;
  double rope_factor;  // That of "llama3"; 1: positions are not scaled.
  bool tied_head;
};
// SmolLM is not SmolLM2, whose theta is 100000 and which has 8192 positions.
constexpr std::array kPublishedFlavors = {
    PublishedFlavor{
        {"tinyllama-1.1b", 32000, 22, 32, 2048}, "llama", 4, 5632, 2048, 1e-5, 10000, 1, false},
    PublishedFlavor{
        {"smollm-135m", 49152, 30, 9, 576}, "llama", 3, 1536, 2048, 1e-5, 10000, 1, true},
    PublishedFlavor{
        {"smollm-360m", 49152, 32, 15, 960}, "llama", 5, 2560, 2048, 1e-5, 10000, 1, true},
    PublishedFlavor{
        {"llama-3.2-1b", 128256, 16, 32, 2048}, "llama", 8, 8192, 131072, 1e-5, 500000, 32, true},
    PublishedFlavor{
        {"qwen2.5-0.5b", 151936, 24, 14, 896}, "qwen2", 2, 4864, 32768, 1e-6, 1000000, 1, true}};

void set_sizes(const Flavor& flavor, ModelSpec& model) {
  model.vocab_size = flavor.vocab_size;
  model.layers = flavor.layers;
  model.heads = flavor.heads;
  model.channels = flavor.channels;
}

void set_published(const PublishedFlavor& flavor, ModelSpec& model) {
  set_sizes(flavor.sizes, model);
  model.name = flavor.family;
  apply_family(model);
  model.kv_heads = flavor.kv_heads;
  model.intermediate_size = flavor.intermediate_size;
  model.positions = flavor.positions;
  model.norm_epsilon = flavor.norm_epsilon;
  model.rope_theta = flavor.rope_theta;
  model.tied_head = flavor.tied_head;
  if (flavor.rope_factor == 1) return;
  model.rope_type = "llama3";  // Its other factors are the defaults.
  model.rope_factor = flavor.rope_factor;
}

/// The angular frequency that "llama3" makes of one.
double llama3_frequency(const ModelSpec& model, double frequency) {
  const double waves = static_cast<double>(model.rope_original_positions) * frequency /
                       (2 * std::numbers::pi);  // In the original length.
  const double low = model.rope_low_freq_factor, high = model.rope_high_freq_factor;
  const double kept = std::clamp((waves - low) / (high - low), 0.0, 1.0);
  return (1 - kept) * frequency / model.rope_factor + kept * frequency;
}

}  // namespace

bool has_rms_norm(const ModelSpec& model) { return model.norm == "rms_norm"; }
bool has_swiglu(const ModelSpec& model) { return model.mlp == "swiglu"; }
bool has_rotary(const ModelSpec& model) { return model.position_embedding_type == "rotary"; }

int64_t kv_heads(const ModelSpec& model) {
  return model.kv_heads > 0 ? model.kv_heads : model.heads;
}
int64_t head_size(const ModelSpec& model) {
  return model.head_size > 0 ? model.head_size : model.channels / model.heads;
}
int64_t query_width(const ModelSpec& model) { return model.heads * head_size(model); }
int64_t key_width(const ModelSpec& model) { return kv_heads(model) * head_size(model); }
int64_t qkv_width(const ModelSpec& model) { return query_width(model) + 2 * key_width(model); }
bool qkv_has_bias(const ModelSpec& model) { return model.has_bias || model.has_qkv_bias; }

std::vector<double> rotary_frequencies(const ModelSpec& model) {
  const int64_t size = head_size(model);
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < size / 2; ++pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(size);
    double frequency = std::pow(model.rope_theta, exponent);
    if (model.rope_type == "linear") frequency /= model.rope_factor;
    if (model.rope_type == "llama3") frequency = llama3_frequency(model, frequency);
    frequencies.push_back(frequency);
  }
  return frequencies;
}

int64_t mlp_width(const ModelSpec& model) {
  if (model.intermediate_size > 0) return model.intermediate_size;
  if (!has_swiglu(model)) return 4 * model.channels;
  constexpr int64_t kMultiple = 32;
  const int64_t least = (8 * model.channels + 2) / 3;
  return (least + kMultiple - 1) / kMultiple * kMultiple;
}
int64_t up_width(const ModelSpec& model) { return (has_swiglu(model) ? 2 : 1) * mlp_width(model); }

bool has_llama_names(const ModelSpec& model) {
  return has_rms_norm(model) && has_swiglu(model) && has_rotary(model);
}
bool stores_outputs_first(const ModelSpec& model) { return has_llama_names(model); }

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
  const bool is_llama = has_llama_names(model);
  const ParameterSpec embedding = matrix(
      is_llama ? "model.embed_tokens.weight" : "transformer.wte.weight", {v, c}, model.init_std);
  std::vector<ParameterSpec> list;
  switch (layer_kind(model, layer)) {
    case LayerKind::kEmbedding:
      list.push_back(embedding);
      if (!has_rotary(model)) {
        list.push_back(matrix("transformer.wpe.weight", {model.positions, c}, model.init_std));
      }
      return list;
    case LayerKind::kBlock:
      for (BlockParameter& parameter : block_parameters(model, layer - 1)) {
        list.push_back(std::move(parameter.spec));
      }
      return list;
    case LayerKind::kHead:
      break;
  }
  list.push_back(constant(is_llama ? "model.norm.weight" : "transformer.ln_f.weight", c, 1));
  if (!has_rms_norm(model)) list.push_back(constant("transformer.ln_f.bias", c, 0));
  if (!model.tied_head) {
    list.push_back(matrix("lm_head.weight", {v, c}, model.init_std));
  } else if (!range.contains(0)) {
    list.push_back(embedding);
    list.back().tied_copy = true;
  }
  return list;
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
      // One addition per element for each table.
      flops.forward = has_rotary(model) ? 0 : tokens * c;
      flops.backward_weight = (has_rotary(model) ? 1 : 2) * tokens * c;
      break;
    case LayerKind::kBlock: {
      // The matrices of q, k and v, of what is attended to, and those of the MLP.
      const auto heads = static_cast<double>(query_width(model));
      const auto qkv = static_cast<double>(qkv_width(model));
      const auto mlp = static_cast<double>(up_width(model) + mlp_width(model));
      const double products = 2 * tokens * ((qkv + heads) * c + mlp * c);
      // Scores and weighted values over the causal half of T x T, for every head.
      const double attention = 2 * tokens * heads * (static_cast<double>(seq_len) + 1);
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

void apply_family(ModelSpec& model) {
  const bool is_llama = model.name != "gpt2";
  model.norm = is_llama ? "rms_norm" : "layer_norm";
  model.mlp = is_llama ? "swiglu" : "gelu";
  model.has_bias = !is_llama;
  model.has_qkv_bias = model.name == "qwen2";
  model.position_embedding_type = is_llama ? "rotary" : "learned";
}

std::string family_of_flavor(const std::string& flavor) {
  for (const PublishedFlavor& each : kPublishedFlavors) {
    if (flavor == each.sizes.name) return each.family;
  }
  return "";
}

absl::Status apply_flavor(ModelSpec& model) {
  std::string names;
  for (const Flavor& flavor : kFlavors) {
    if (model.flavor == flavor.name) {
      set_sizes(flavor, model);
      return absl::OkStatus();
    }
    absl::StrAppend(&names, names.empty() ? "" : ", ", flavor.name);
  }
  for (const PublishedFlavor& flavor : kPublishedFlavors) {
    if (model.flavor == flavor.sizes.name) {
      set_published(flavor, model);
      return absl::OkStatus();
    }
    absl::StrAppend(&names, ", ", flavor.sizes.name);
  }
  return absl::NotFoundError(
      absl::StrCat("model.flavor = \"", model.flavor, "\" does not exist; there are ", names));
}

}  // namespace skein::plans
