#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skein::plans {

/// A transformer of pre-norm blocks with causal attention: GPT-2, with Llama's norms, MLPs and
/// positions as choices of their own.
struct ModelSpec {
  std::string name = "gpt2";  // "gpt2" or "llama": the family whose choices are the defaults.
  std::string flavor;         // A named size that sets the fields below; empty: as given.
  int64_t vocab_size = 256;   // V
  int64_t positions = 1024;   // Longest sequence.
  int64_t layers = 6;         // L, transformer blocks.
  int64_t heads = 8;          // H; divides channels.
  int64_t channels = 256;     // C
  bool tied_head = true;      // The head multiplies by the token embedding.
  double norm_epsilon = 1e-5;
  double init_std = 0.02;           // Residual projections: divided by sqrt(2 L).
  std::string norm = "layer_norm";  // Or "rms_norm" (Zhang and Sennrich, NeurIPS'19).
  std::string mlp = "gelu";         // Or "swiglu" (Shazeer, arXiv 2002.05202).
  int64_t intermediate_size = 0;    // I, width inside the MLP; 0: as `mlp_width` says.
  bool has_bias = true;             // Products have biases; a layer norm always has one.
  // "learned" or "rotary" (Su et al., arXiv 2104.09864).
  std::string position_embedding_type = "learned";
  double rope_theta = 10000;  // Rotary: pair i of a head of D turns by theta^(-2i / D) a position.
  bool operator==(const ModelSpec&) const = default;
};

bool has_rms_norm(const ModelSpec& model);
bool has_swiglu(const ModelSpec& model);
bool has_rotary(const ModelSpec& model);
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

/// Sets the sizes of a named flavor: "byte-tiny", "byte-small", "byte-medium", "gpt2",
/// "gpt2-medium", "gpt2-large", "gpt2-xl". NotFound   if there is none of that name; the message
/// lists them.
absl::Status apply_flavor(ModelSpec& model);

}  // namespace skein::plans
