#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skein::plans {

/// A transformer of pre-norm blocks with causal attention: GPT-2, with Llama's and Qwen2's norms,
/// MLPs, heads, biases and positions as choices of their own.
struct ModelSpec {
  std::string name = "gpt2";  // "gpt2", "llama" or "qwen2": whose choices are the defaults.
  std::string flavor;         // A named size that sets the fields below; empty: as given.
  int64_t vocab_size = 256;   // V
  int64_t positions = 1024;   // Longest sequence.
  int64_t layers = 6;         // L, transformer blocks.
  int64_t heads = 8;          // H, of queries.
  int64_t kv_heads = 0;       // K, of keys and values; divides H. 0: as many as H.
  int64_t head_size = 0;      // D, channels of a head. 0: C / H.
  int64_t channels = 256;     // C
  bool tied_head = true;      // The head multiplies by the token embedding.
  double norm_epsilon = 1e-5;
  double init_std = 0.02;           // Residual projections: divided by sqrt(2 L).
  std::string norm = "layer_norm";  // Or "rms_norm" (Zhang and Sennrich, NeurIPS'19).
  std::string mlp = "gelu";         // Or "swiglu" (Shazeer, arXiv 2002.05202).
  int64_t intermediate_size = 0;    // I, width inside the MLP; 0: as `mlp_width` says.
  bool has_bias = true;             // Products have biases; a layer norm always has one.
  bool has_qkv_bias = false;        // Those of q, k and v have, also where the others have not.
  // "learned" or "rotary" (Su et al., arXiv 2104.09864).
  std::string position_embedding_type = "learned";
  double rope_theta = 10000;  // Rotary: pair i of a head of D turns by theta^(-2i / D) a position.
  // How the frequencies of turns are scaled for longer sequences: "default" (not), "linear" (by
  // 1 / factor) or "llama3" (by 1 / factor where a turn takes long, see `rotary_frequencies`).
  std::string rope_type = "default";
  double rope_factor = 1;
  double rope_low_freq_factor = 1;   // "llama3": a wave longer than the original length / this is
  double rope_high_freq_factor = 4;  // scaled, one shorter than the original length / this is not.
  int64_t rope_original_positions = 8192;  // "llama3": longest sequence before scaling.
  bool operator==(const ModelSpec&) const = default;
};

bool has_rms_norm(const ModelSpec& model);
bool has_swiglu(const ModelSpec& model);
bool has_rotary(const ModelSpec& model);
int64_t kv_heads(const ModelSpec& model);   // K
int64_t head_size(const ModelSpec& model);  // D
/// What the heads of queries have together, H D: C unless `head_size` is given.
int64_t query_width(const ModelSpec& model);
/// What those of keys have together, K D; those of values have as much.
int64_t key_width(const ModelSpec& model);
/// What comes out of the product for q, k and v: (H + 2 K) D.
int64_t qkv_width(const ModelSpec& model);
/// Whether the product for q, k and v has a bias.
bool qkv_has_bias(const ModelSpec& model);
/// Pair i of a head turns by the i-th of these D / 2 angles from one position to the next.
/// Scaled by "llama3" (Llama 3.1: arXiv 2407.21783), with r = (original length / wavelength -
/// low) / (high - low), cut to [0, 1], a frequency f is (1 - r) f / factor + r f. "linear" makes
/// f / factor of each.
std::vector<double> rotary_frequencies(const ModelSpec& model);
/// I: `intermediate_size`, or 4 C, or with "swiglu" 8/3 C rounded up to a multiple of 32, which
/// makes three matrices as large as two.
int64_t mlp_width(const ModelSpec& model);
/// What goes into the MLP's activation: I, with "swiglu" 2 I, the gate first.
int64_t up_width(const ModelSpec& model);
/// With all of Llama's choices tensors have Llama's names, otherwise GPT-2's.
bool has_llama_names(const ModelSpec& model);
/// Matrices of blocks are [out, in], as Llama's, instead of [in, out], as GPT-2's.
bool stores_outputs_first(const ModelSpec& model);

/// The kinds of layer, a layer being the smallest unit that a plan may cut between. A model of L
/// blocks has L + 2 layers: 0 is the embedding, 1..L the blocks, L + 1 the final norm, head and
/// loss.
enum class LayerKind { kEmbedding, kBlock, kHead };

int64_t layer_count(const ModelSpec& model);
LayerKind layer_kind(const ModelSpec& model, int64_t layer);

/// Layers [begin, end).
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool contains(int64_t layer) const { return layer >= begin && layer < end; }
  bool operator==(const LayerRange&) const = default;
};

/// A named tensor of the model, by its name and in its form in Hugging Face's GPT-2 or Llama.
struct ParameterSpec {
  std::string name;            // "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // [C, 3C]
  double init_std = 0;         // Normal(0, init_std); 0 means constant `init_value`.
  double init_value = 0;
  bool decays = false;  // Weight decay applies: matrices, not biases and norms.
  /// True for the head's copy of the tied embedding: the tensor of that name belongs to layer 0,
  /// its gradient is the sum of both uses, and it is stored once.
  bool tied_copy = false;
  bool operator==(const ParameterSpec&) const = default;
};

int64_t element_count(const ParameterSpec& parameter);

/// The parameters of one layer in the order of the forward pass. With a tied head, layer L + 1 ends
/// with the copy of the embedding unless `range` also holds layer 0.
std::vector<ParameterSpec> layer_parameters(const ModelSpec& model, int64_t layer,
                                            const LayerRange& range);
/// Those of all layers of `range`, in order.
std::vector<ParameterSpec> range_parameters(const ModelSpec& model, const LayerRange& range);

/// Parameters of the whole model, a tied embedding counted once.
int64_t parameter_count(const ModelSpec& model);

/// Floating point operations of a layer for `samples` sequences of `seq_len` tokens (a multiply-add
/// counts two). Attention counts the causal half only.
struct LayerFlops {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double total() const { return forward + backward_input + backward_weight; }
};
LayerFlops layer_flops(const ModelSpec& model, int64_t layer, int64_t samples, int64_t seq_len);

/// Sets the choices of the family `model.name`: norm, MLP, biases and positions.
void apply_family(ModelSpec& model);

/// Sets the sizes of a named flavor, "byte-tiny", "byte-small", "byte-medium", "gpt2",
/// "gpt2-medium", "gpt2-large", "gpt2-xl"; and all choices of "tinyllama-1.1b", "smollm-135m",
/// "smollm-360m", "llama-3.2-1b" and "qwen2.5-0.5b", as they were published. NotFound   if there is
/// none of that name; the message lists them.
absl::Status apply_flavor(ModelSpec& model);
/// The family that a flavor is of, if it says so; else empty.
std::string family_of_flavor(const std::string& flavor);

}  // namespace skein::plans
