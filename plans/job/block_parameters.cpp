#include "plans/job/block_parameters.hpp"

#include <cmath>
#include <numeric>
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

  /// `widths`: the outputs of each name.
  struct Linear {
    const std::vector<std::string>& names;
    std::vector<int64_t> widths;
    BlockPart weight, bias;
    bool has_bias;
  };
  void add_linear(const Linear& linear, int64_t in, double init_std) {
    for (size_t i = 0; i < linear.names.size(); ++i) {
      const int64_t own = linear.widths[i];
      const std::vector<int64_t> shape = stores_outputs_first(model_)
                                             ? std::vector<int64_t>{own, in}
                                             : std::vector<int64_t>{in, own};
      list_.push_back({linear.weight,
                       {prefix_ + linear.names[i] + ".weight", shape, init_std, 0, true, false}});
    }
    if (!linear.has_bias) return;
    for (size_t i = 0; i < linear.names.size(); ++i) {
      constant(linear.bias, linear.names[i] + ".bias", linear.widths[i], 0);
    }
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

/// What each name has of the outputs: its own part, or all of them if there is one name.
std::vector<int64_t> widths_of(const std::vector<std::string>& names,
                               const std::vector<int64_t>& parts) {
  if (names.size() == parts.size()) return parts;
  return {std::accumulate(parts.begin(), parts.end(), int64_t{0})};
}

}  // namespace

std::vector<BlockParameter> block_parameters(const ModelSpec& model, int64_t block) {
  const int64_t c = model.channels;
  const Names names = names_of(model);
  // Residual projections start smaller, so that depth does not grow the variance (GPT-2, 2.3).
  const double residual_std = model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
  const std::vector<int64_t> qkv = {query_width(model), key_width(model), key_width(model)};
  const std::vector<int64_t> up(has_swiglu(model) ? 2 : 1, mlp_width(model));
  BlockList list(model, absl::StrCat(names.prefix, block, "."));
  list.add_norm(names.norm1, BlockPart::kNorm1Weight, BlockPart::kNorm1Bias);
  list.add_linear({names.qkv, widths_of(names.qkv, qkv), BlockPart::kQkvWeight, BlockPart::kQkvBias,
                   qkv_has_bias(model)},
                  c, model.init_std);
  list.add_linear({names.projection,
                   {c},
                   BlockPart::kProjectionWeight,
                   BlockPart::kProjectionBias,
                   model.has_bias},
                  query_width(model), residual_std);
  list.add_norm(names.norm2, BlockPart::kNorm2Weight, BlockPart::kNorm2Bias);
  list.add_linear(
      {names.up, widths_of(names.up, up), BlockPart::kUpWeight, BlockPart::kUpBias, model.has_bias},
      c, model.init_std);
  list.add_linear({names.down, {c}, BlockPart::kDownWeight, BlockPart::kDownBias, model.has_bias},
                  mlp_width(model), residual_std);
  return list.take();
}

BlockNumbers block_numbers(const ModelSpec& model) {
  const int64_t c = model.channels;
  BlockNumbers numbers;
  // Both normed, middle; q k v, attended; what goes into the MLP's activation and what comes out.
  numbers.stash =
      3 * c + qkv_width(model) + query_width(model) + up_width(model) + mlp_width(model);
  numbers.statistics = (has_rms_norm(model) ? 2 : 4) + model.heads;  // Norms, log-sum-exp.
  // Gradients of the output and middle, of q k v, and of the activation's input.
  numbers.pending = 2 * c + qkv_width(model) + up_width(model);
  return numbers;
}

}  // namespace skein::plans
