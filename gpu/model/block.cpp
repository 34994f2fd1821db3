#include <algorithm>
#include <array>
#include <utility>

#include "gpu/model/layer.hpp"
#include "plans/job/block_parameters.hpp"

namespace skein::gpu {
namespace {

using plans::BlockPart;

/// One pointer for each part of a block, null where the model has no such part.
template <class Pointer>
class Parts {
 public:
  Pointer operator[](BlockPart part) const { return pointers_[static_cast<size_t>(part)]; }
  Pointer& operator[](BlockPart part) { return pointers_[static_cast<size_t>(part)]; }

 private:
  std::array<Pointer, plans::kBlockPartCount> pointers_{};
};

/// x + attention(norm(x)), then x + mlp(norm(x)) (GPT-2, section 2.3: norms before each part).
class Block final : public Layer {
 public:
  explicit Block(const LayerShape& shape)
      : n_(shape.tokens()),
        c_(shape.model.channels),
        heads_(plans::query_width(shape.model)),
        keys_(plans::key_width(shape.model)),
        qkv_(plans::qkv_width(shape.model)),
        up_(plans::up_width(shape.model)),
        width_(plans::mlp_width(shape.model)),
        numbers_(plans::block_numbers(shape.model)),
        has_mean_(!plans::has_rms_norm(shape.model)),
        has_gate_(plans::has_swiglu(shape.model)),
        is_rotary_(plans::has_rotary(shape.model)),
        transposed_(plans::stores_outputs_first(shape.model)),
        attention_{shape.rows, shape.seq_len, shape.model.heads, plans::kv_heads(shape.model),
                   plans::head_size(shape.model)},
        epsilon_(static_cast<float>(shape.model.norm_epsilon)) {
    for (const auto& parameter : plans::block_parameters(shape.model, 0)) {
      parts_.push_back(parameter.part);
    }
  }

  int64_t stash_numbers() const override { return n_ * numbers_.stash; }
  int64_t statistics_floats() const override { return n_ * numbers_.statistics; }
  int64_t pending_numbers() const override { return n_ * numbers_.pending; }
  int64_t scratch_numbers() const override {
    return n_ * std::max({c_, heads_, has_gate_ ? width_ : 0});
  }

  void forward(Ops& ops, const LayerParameters& parameters, const Memory& memory,
               Numbers output) const override {
    const Parts<float*> w = parts_of(parameters.weights);
    const Parts<ConstNumbers> m = parts_of(parameters.operands);
    const Stash s = stash(memory);
    ops.norm_forward({memory.input, w[BlockPart::kNorm1Weight], w[BlockPart::kNorm1Bias], s.normed1,
                      s.mean1, s.rstd1, n_, c_, epsilon_});
    ops.linear(linear(c_, qkv_), s.normed1, m[BlockPart::kQkvWeight], m[BlockPart::kQkvBias],
               s.qkv);
    if (is_rotary_) ops.rotate({attention_, memory.turns, false}, s.qkv);
    attend(ops, memory.cache, s);
    ops.linear_residual(linear(heads_, c_), s.attended, m[BlockPart::kProjectionWeight],
                        m[BlockPart::kProjectionBias], memory.input, s.middle);
    ops.norm_forward({s.middle, w[BlockPart::kNorm2Weight], w[BlockPart::kNorm2Bias], s.normed2,
                      s.mean2, s.rstd2, n_, c_, epsilon_});
    activate(ops, m, s);
    ops.linear_residual(linear(width_, c_), s.activated, m[BlockPart::kDownWeight],
                        m[BlockPart::kDownBias], s.middle, output);
  }

  void backward_input(Ops& ops, const LayerParameters& parameters, const Memory& memory,
                      ConstNumbers output_gradient, Numbers input_gradient) const override {
    const Parts<float*> w = parts_of(parameters.weights);
    const Parts<ConstNumbers> m = parts_of(parameters.operands);
    const Parts<float*> g = parts_of(parameters.gradients);
    const Stash s = stash(memory);
    const Pending p = pending(memory.pending);
    const Numbers scratch = memory.scratch;  // [N, C] or [N, H D]
    activate_backward(ops, m, s, output_gradient, scratch, p.dup);
    ops.linear_input_gradient(linear(c_, up_), p.dup, m[BlockPart::kUpWeight], scratch);
    ops.norm_backward({scratch, s.middle, w[BlockPart::kNorm2Weight], s.mean2, s.rstd2,
                       output_gradient, p.dmiddle, g[BlockPart::kNorm2Weight],
                       g[BlockPart::kNorm2Bias], n_, c_});
    ops.linear_input_gradient(linear(heads_, c_), p.dmiddle, m[BlockPart::kProjectionWeight],
                              scratch);
    ops.attention_backward(attention_, s.qkv, s.attended, s.log_sum_exp, scratch, p.dqkv);
    if (is_rotary_) ops.rotate({attention_, memory.turns, true}, p.dqkv);
    ops.linear_input_gradient(linear(c_, qkv_), p.dqkv, m[BlockPart::kQkvWeight], scratch);
    ops.norm_backward({scratch, memory.input, w[BlockPart::kNorm1Weight], s.mean1, s.rstd1,
                       p.dmiddle, input_gradient, g[BlockPart::kNorm1Weight],
                       g[BlockPart::kNorm1Bias], n_, c_});
  }

  void backward_weight(Ops& ops, const LayerParameters& parameters, const Memory& memory,
                       ConstNumbers output_gradient) const override {
    const Parts<float*> g = parts_of(parameters.gradients);
    const Stash s = stash(memory);
    const Pending p = pending(memory.pending);
    ops.linear_weight_gradient(linear(width_, c_), s.activated, output_gradient,
                               g[BlockPart::kDownWeight], g[BlockPart::kDownBias]);
    ops.linear_weight_gradient(linear(c_, up_), s.normed2, p.dup, g[BlockPart::kUpWeight],
                               g[BlockPart::kUpBias]);
    ops.linear_weight_gradient(linear(heads_, c_), s.attended, p.dmiddle,
                               g[BlockPart::kProjectionWeight], g[BlockPart::kProjectionBias]);
    float* dqkv_bias = g[BlockPart::kQkvBias];
    ops.linear_weight_gradient(linear(c_, qkv_), s.normed1, p.dqkv, g[BlockPart::kQkvWeight],
                               dqkv_bias);
    // A key bias adds the same number to all scores of a query, which softmax ignores: its gradient
    // is zero. What rounding leaves there would be blown up by Adam to full steps, different ones
    // for every layout. A bias that is turned with its key's position matters.
    if (dqkv_bias != nullptr && !is_rotary_) ops.zero(dqkv_bias + heads_, keys_);
  }

 private:
  struct Stash {
    float *mean1, *rstd1, *mean2, *rstd2;  // [N]; no means of RMS norms.
    float* log_sum_exp;                    // [B, H, T]
    Numbers normed1;                       // [N, C]
    Numbers qkv;        // [N, (H + 2 K) D], q and k turned with rotary positions.
    Numbers attended;   // [N, H D]
    Numbers middle;     // [N, C]
    Numbers normed2;    // [N, C]
    Numbers up;         // [N, up width]
    Numbers activated;  // [N, I]
  };
  struct Pending {
    Numbers dup;      // [N, up width]
    Numbers dmiddle;  // [N, C]
    Numbers dqkv;     // [N, (H + 2 K) D]
  };

  void attend(Ops& ops, const Ops::KeyValueCache& cache, const Stash& s) const {
    if (cache.capacity > 0) ops.append_to_cache(attention_, s.qkv, cache);
    if (cache.length > 0) {
      ops.attend_to_cache(attention_, s.qkv, cache, s.attended);
    } else {
      ops.attention_forward(attention_, s.qkv, s.attended, s.log_sum_exp);
    }
  }

  void activate(Ops& ops, const Parts<ConstNumbers>& m, const Stash& s) const {
    const Ops::Linear up = linear(c_, up_);
    const ConstNumbers weight = m[BlockPart::kUpWeight];
    const ConstNumbers bias = m[BlockPart::kUpBias];
    if (has_gate_) {
      ops.linear(up, s.normed2, weight, bias, s.up);
      ops.swiglu_forward({n_, width_}, s.up, s.activated);
    } else {
      ops.linear_gelu(up, s.normed2, weight, bias, s.up, s.activated);
    }
  }

  void activate_backward(Ops& ops, const Parts<ConstNumbers>& m, const Stash& s,
                         ConstNumbers gradient, Numbers scratch, Numbers dup) const {
    const Ops::Linear down = linear(width_, c_);
    const ConstNumbers weight = m[BlockPart::kDownWeight];
    if (has_gate_) {
      ops.linear_input_gradient(down, gradient, weight, scratch);  // [N, I]
      ops.swiglu_backward({n_, width_}, s.up, scratch, dup);
    } else {
      ops.linear_gelu_gradient(down, gradient, weight, s.up, dup);
    }
  }

  Stash stash(const Memory& memory) const {
    auto take = [next = memory.stash](int64_t count) mutable {
      return std::exchange(next, next + count);
    };
    auto take_floats = [next = memory.statistics](int64_t count) mutable {
      return std::exchange(next, next + count);
    };
    const int64_t nc = n_ * c_;
    Stash s{};
    s.normed1 = take(nc);
    s.qkv = take(n_ * qkv_);
    s.attended = take(n_ * heads_);
    s.middle = take(nc);
    s.normed2 = take(nc);
    s.up = take(n_ * up_);
    s.activated = take(n_ * width_);
    s.log_sum_exp = take_floats(n_ * attention_.heads);
    s.rstd1 = take_floats(n_);
    s.rstd2 = take_floats(n_);
    s.mean1 = has_mean_ ? take_floats(n_) : nullptr;
    s.mean2 = has_mean_ ? take_floats(n_) : nullptr;
    return s;
  }
  Pending pending(Numbers base) const {
    const int64_t nc = n_ * c_;
    const Numbers dup = base + nc;  // Behind the output's gradient.
    const Numbers dmiddle = dup + n_ * up_;
    return {dup, dmiddle, dmiddle + nc};
  }

  Ops::Linear linear(int64_t in, int64_t out) const { return {n_, in, out, transposed_}; }

  /// Tensors of one part lie one behind the other: the first is where the part begins.
  template <class Pointer>
  Parts<Pointer> parts_of(const std::vector<Pointer>& tensors) const {
    Parts<Pointer> result;
    for (size_t i = tensors.size(); i-- > 0;) result[parts_[i]] = tensors[i];
    return result;
  }

  int64_t n_, c_;
  int64_t heads_, keys_, qkv_;  // Widths: H D, K D, (H + 2 K) D.
  int64_t up_, width_;
  plans::BlockNumbers numbers_;
  bool has_mean_, has_gate_, is_rotary_, transposed_;
  Ops::Attention attention_;
  float epsilon_;
  std::vector<BlockPart> parts_;  // The part that each tensor belongs to.
};

}  // namespace

std::unique_ptr<Layer> make_block(const LayerShape& shape) {
  return std::make_unique<Block>(shape);
}

}  // namespace skein::gpu
