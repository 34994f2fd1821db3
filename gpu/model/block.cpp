#include <algorithm>
#include <array>
#include <utility>

#include "gpu/model/layer.hpp"
#include "plans/block_parameters.hpp"

namespace skein::gpu {
namespace {

using plans::BlockPart;

/// One pointer for each part of a block, null where the model has no such part.
class Parts {
 public:
  float* operator[](BlockPart part) const { return pointers_[static_cast<size_t>(part)]; }
  float*& operator[](BlockPart part) { return pointers_[static_cast<size_t>(part)]; }

 private:
  std::array<float*, plans::kBlockPartCount> pointers_{};
};

/// x + attention(norm(x)), then x + mlp(norm(x)) (GPT-2, section 2.3: norms before each part).
class Block final : public Layer {
 public:
  explicit Block(const LayerShape& shape)
      : n_(shape.tokens()),
        c_(shape.model.channels),
        up_(plans::up_width(shape.model)),
        width_(plans::mlp_width(shape.model)),
        floats_(plans::block_floats(shape.model)),
        has_mean_(!plans::has_rms_norm(shape.model)),
        has_gate_(plans::has_swiglu(shape.model)),
        is_rotary_(plans::has_rotary(shape.model)),
        transposed_(plans::stores_outputs_first(shape.model)),
        attention_{shape.rows, shape.seq_len, shape.model.heads, shape.model.channels},
        epsilon_(static_cast<float>(shape.model.norm_epsilon)) {
    for (const auto& parameter : plans::block_parameters(shape.model, 0)) {
      parts_.push_back(parameter.part);
    }
  }

  int64_t stash_floats() const override { return n_ * floats_.stash; }
  int64_t pending_floats() const override { return n_ * floats_.pending; }
  int64_t scratch_floats() const override { return n_ * (has_gate_ ? std::max(c_, width_) : c_); }

  void forward(Ops& ops, const LayerParameters& parameters, const Memory& memory,
               float* output) const override {
    const Parts w = parts_of(parameters.weights);
    const Stash s = stash(memory.stash);
    ops.norm_forward({memory.input, w[BlockPart::kNorm1Weight], w[BlockPart::kNorm1Bias], s.normed1,
                      s.mean1, s.rstd1, n_, c_, epsilon_});
    ops.linear(linear(c_, 3 * c_), s.normed1, w[BlockPart::kQkvWeight], w[BlockPart::kQkvBias],
               s.qkv);
    if (is_rotary_) ops.rotate({attention_, memory.turns, false}, s.qkv);
    ops.attention_forward(attention_, s.qkv, s.attended, s.log_sum_exp);
    ops.linear(linear(c_, c_), s.attended, w[BlockPart::kProjectionWeight],
               w[BlockPart::kProjectionBias], s.middle);
    ops.add_norm_forward(s.middle, memory.input, s.middle,
                         {s.middle, w[BlockPart::kNorm2Weight], w[BlockPart::kNorm2Bias], s.normed2,
                          s.mean2, s.rstd2, n_, c_, epsilon_});
    activate(ops, w, s);
    ops.linear(linear(width_, c_), s.activated, w[BlockPart::kDownWeight], w[BlockPart::kDownBias],
               output);
    ops.add(output, s.middle, output, n_ * c_);
  }

  void backward_input(Ops& ops, const LayerParameters& parameters, const Memory& memory,
                      float* gradient) const override {
    const Parts w = parts_of(parameters.weights);
    const Parts g = parts_of(parameters.gradients);
    const Stash s = stash(memory.stash);
    const Pending p = pending(memory.pending);
    float* scratch = memory.scratch;  // [N, C]
    ops.copy(gradient, p.dout, n_ * c_);
    activate_backward(ops, w, s, gradient, scratch, p.dup);
    ops.linear_input_gradient(linear(c_, up_), p.dup, w[BlockPart::kUpWeight], scratch);
    ops.norm_backward({scratch, s.middle, w[BlockPart::kNorm2Weight], s.mean2, s.rstd2, gradient,
                       g[BlockPart::kNorm2Weight], g[BlockPart::kNorm2Bias], n_, c_});
    ops.copy(gradient, p.dmiddle, n_ * c_);
    ops.linear_input_gradient(linear(c_, c_), gradient, w[BlockPart::kProjectionWeight], scratch);
    ops.attention_backward(attention_, s.qkv, s.attended, s.log_sum_exp, scratch, p.dqkv);
    if (is_rotary_) ops.rotate({attention_, memory.turns, true}, p.dqkv);
    ops.linear_input_gradient(linear(c_, 3 * c_), p.dqkv, w[BlockPart::kQkvWeight], scratch);
    ops.norm_backward({scratch, memory.input, w[BlockPart::kNorm1Weight], s.mean1, s.rstd1,
                       gradient, g[BlockPart::kNorm1Weight], g[BlockPart::kNorm1Bias], n_, c_});
  }

  void backward_weight(Ops& ops, const LayerParameters& parameters,
                       const Memory& memory) const override {
    const Parts g = parts_of(parameters.gradients);
    const Stash s = stash(memory.stash);
    const Pending p = pending(memory.pending);
    ops.linear_weight_gradient(linear(width_, c_), s.activated, p.dout, g[BlockPart::kDownWeight],
                               g[BlockPart::kDownBias]);
    ops.linear_weight_gradient(linear(c_, up_), s.normed2, p.dup, g[BlockPart::kUpWeight],
                               g[BlockPart::kUpBias]);
    ops.linear_weight_gradient(linear(c_, c_), s.attended, p.dmiddle,
                               g[BlockPart::kProjectionWeight], g[BlockPart::kProjectionBias]);
    float* dqkv_bias = g[BlockPart::kQkvBias];
    ops.linear_weight_gradient(linear(c_, 3 * c_), s.normed1, p.dqkv, g[BlockPart::kQkvWeight],
                               dqkv_bias);
    // A key bias adds the same number to all scores of a query, which softmax ignores: its gradient
    // is zero. What rounding leaves there would be blown up by Adam to full steps, different ones
    // for every layout. A bias that is turned with its key's position matters.
    if (dqkv_bias != nullptr && !is_rotary_) ops.zero(dqkv_bias + c_, c_);
  }

 private:
  struct Stash {
    float *mean1, *rstd1, *mean2, *rstd2;  // [N]; no means of RMS norms.
    float* log_sum_exp;                    // [B, H, T]
    float* normed1;                        // [N, C]
    float* qkv;                            // [N, 3C], q and k turned with rotary positions.
    float* attended;                       // [N, C]
    float* middle;                         // [N, C]
    float* normed2;                        // [N, C]
    float* up;                             // [N, up width]
    float* activated;                      // [N, I]
  };
  struct Pending {
    float* dout;     // [N, C]
    float* dup;      // [N, up width]
    float* dmiddle;  // [N, C]
    float* dqkv;     // [N, 3C]
  };

  void activate(Ops& ops, const Parts& w, const Stash& s) const {
    const Ops::Linear up = linear(c_, up_);
    const float* weight = w[BlockPart::kUpWeight];
    const float* bias = w[BlockPart::kUpBias];
    if (has_gate_) {
      ops.linear(up, s.normed2, weight, bias, s.up);
      ops.swiglu_forward({n_, width_}, s.up, s.activated);
    } else {
      ops.linear_gelu(up, s.normed2, weight, bias, s.up, s.activated);
    }
  }

  void activate_backward(Ops& ops, const Parts& w, const Stash& s, const float* gradient,
                         float* scratch, float* dup) const {
    float* dactivated = has_gate_ ? scratch : dup;  // [N, I]
    ops.linear_input_gradient(linear(width_, c_), gradient, w[BlockPart::kDownWeight], dactivated);
    if (has_gate_) {
      ops.swiglu_backward({n_, width_}, s.up, dactivated, dup);
    } else {
      ops.gelu_backward(s.up, dup, n_ * width_);
    }
  }

  Stash stash(float* next) const {
    auto take = [&next](int64_t floats) { return std::exchange(next, next + floats); };
    const int64_t nc = n_ * c_;
    // Wide tensors first, so that they start where the stash is aligned.
    Stash s{};
    s.normed1 = take(nc);
    s.qkv = take(3 * nc);
    s.attended = take(nc);
    s.middle = take(nc);
    s.normed2 = take(nc);
    s.up = take(n_ * up_);
    s.activated = take(n_ * width_);
    s.log_sum_exp = take(n_ * attention_.heads);
    s.rstd1 = take(n_);
    s.rstd2 = take(n_);
    s.mean1 = has_mean_ ? take(n_) : nullptr;
    s.mean2 = has_mean_ ? take(n_) : nullptr;
    return s;
  }
  Pending pending(float* base) const {
    const int64_t nc = n_ * c_;
    float* dmiddle = base + nc + n_ * up_;
    return {base, base + nc, dmiddle, dmiddle + nc};
  }

  Ops::Linear linear(int64_t in, int64_t out) const { return {n_, in, out, transposed_}; }

  /// Tensors of one part lie one behind the other: the first is where the part begins.
  Parts parts_of(const std::vector<float*>& tensors) const {
    Parts result;
    for (size_t i = tensors.size(); i-- > 0;) result[parts_[i]] = tensors[i];
    return result;
  }

  int64_t n_, c_, up_, width_;
  plans::BlockFloats floats_;
  bool has_mean_, has_gate_, is_rotary_, transposed_;
  Ops::Attention attention_;
  float epsilon_;
  std::vector<BlockPart> parts_;  // Of each tensor.
};

}  // namespace

std::unique_ptr<Layer> make_block(const LayerShape& shape) {
  return std::make_unique<Block>(shape);
}

}  // namespace skein::gpu
