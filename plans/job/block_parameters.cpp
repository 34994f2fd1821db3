#include "plans/job/block_parameters.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

/// How a family calls the tensors of a block, without ".weight" and ".bias".
struct Names {
  const char* prefix;
  std::string norm1;
  std::vector<std::string> qkv, projection;
  std::string norm2;
  std::vector<std::string> up, down;
};

Names names_of(const ModelSpec& model) {
  if (!has_llama_names(model)) {
    return {"transformer.h.", "ln_1",       {"attn.c_attn"}, {"attn.c_proj"},
            "ln_2",           {"mlp.c_fc"}, {"mlp.c_proj"}};
  }
  return {"model.layers.",
          "input_layernorm",
          {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          {"self_attn.o_proj"},
          "post_attention_layernorm",
          {"mlp.gate_proj", "mlp.up_proj"},
          {"mlp.down_proj"}};
}

class BlockList {
 public:
  BlockList(const ModelSpec& model, std::string prefix)
      : model_(model), prefix_(std::move(prefix)) {}

  void add_norm(const std::string& name, BlockPart weight, BlockPart bias) {
    constant(weight, name + ".weight", model_.channels, 1);
    if (!has_rms_norm(model_)) constant(bias, name + ".bias", model_.channels, 0);
  }

  /// Equal shares of the outputs for each name.
  void add_linear(const std::vector<std::string>& names, BlockPart weight, BlockPart bias,
                  int64_t in, int64_t out, double init_std) {
    const int64_t own = out / static_cast<int64_t>(names.size());
    for (const std::string& name : names) {
      const std::vector<int64_t> shape = stores_outputs_first(model_)
                                             ? std::vector<int64_t>{own, in}
                                             : std::vector<int64_t>{in, own};
      list_.push_back({weight, {prefix_ + name + ".weight", shape, init_std, 0, true, false}});
    }
    if (!model_.has_bias) return;
    for (const std::string& name : names) constant(bias, name + ".bias", own, 0);
  }

  std::vector<BlockParameter> take() { return std::move(list_); }

 private:
  void constant(BlockPart part, const std::string& name, int64_t count, double value) {
    list_.push_back({part, {prefix_ + name, {count}, 0, value, /*decays=*/false, false}});
  }

  const ModelSpec& model_;
  std::string prefix_;
  std::vector<BlockParameter> list_;
};

}  // namespace

std::vector<BlockParameter> block_parameters(const ModelSpec& model, int64_t block) {
  const int64_t c = model.channels;
  const Names names = names_of(model);
  // Residual projections start smaller, so that depth does not grow the variance (GPT-2, 2.3).
  const double residual_std = model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
  BlockList list(model, absl::StrCat(names.prefix, block, "."));
  list.add_norm(names.norm1, BlockPart::kNorm1Weight, BlockPart::kNorm1Bias);
  list.add_linear(names.qkv, BlockPart::kQkvWeight, BlockPart::kQkvBias, c, 3 * c, model.init_std);
  list.add_linear(names.projection, BlockPart::kProjectionWeight, BlockPart::kProjectionBias, c, c,
                  residual_std);
  list.add_norm(names.norm2, BlockPart::kNorm2Weight, BlockPart::kNorm2Bias);
  list.add_linear(names.up, BlockPart::kUpWeight, BlockPart::kUpBias, c, up_width(model),
                  model.init_std);
  list.add_linear(names.down, BlockPart::kDownWeight, BlockPart::kDownBias, mlp_width(model), c,
                  residual_std);
  return list.take();
}

BlockNumbers block_numbers(const ModelSpec& model) {
  const int64_t c = model.channels;
  BlockNumbers numbers;
  // Both normed, q k v, attended, middle; what goes into the MLP's activation and what comes out.
  numbers.stash = (1 + 1 + 3 + 1 + 1) * c + up_width(model) + mlp_width(model);
  numbers.statistics = (has_rms_norm(model) ? 2 : 4) + model.heads;  // Norms, log-sum-exp.
  // Gradients of the output, the activation's input, middle, and q k v.
  numbers.pending = (1 + 1 + 3) * c + up_width(model);
  return numbers;
}

}  // namespace skein::plans
