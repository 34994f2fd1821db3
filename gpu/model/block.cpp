#include <utility>

#include "gpu/model/layer.hpp"

namespace skein::gpu {
namespace {

/// Parameters of a block, in the order of plans::layer_parameters.
enum Parameter {
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kNorm2Weight,
  kNorm2Bias,
  kUpWeight,
  kUpBias,
  kDownWeight,
  kDownBias,
};

/// x + attention(norm(x)), then x + mlp(norm(x)) (GPT-2, section 2.3: norms before each part).
class Block final : public Layer {
 public:
  explicit Block(const LayerShape& shape)
      : n_(shape.tokens()),
        c_(shape.model.channels),
        attention_{shape.rows, shape.seq_len, shape.model.heads, shape.model.channels},
        epsilon_(static_cast<float>(shape.model.norm_epsilon)) {}

  int64_t stash_floats() const override {
    return 4 * n_ + n_ * attention_.heads + (1 + 3 + 1 + 1 + 1 + 4 + 4) * n_ * c_;
  }
  int64_t pending_floats() const override { return (1 + 4 + 1 + 3) * n_ * c_; }
  int64_t scratch_floats() const override { return n_ * c_; }

  void forward(Ops& ops, const LayerParameters& parameters, const Memory& memory,
               float* output) const override {
    const auto& w = parameters.weights;
    const Stash s = stash(memory.stash);
    ops.norm_forward({memory.input, w[kNorm1Weight], w[kNorm1Bias], s.normed1, s.mean1, s.rstd1, n_,
                      c_, epsilon_});
    ops.linear({n_, c_, 3 * c_}, s.normed1, w[kQkvWeight], w[kQkvBias], s.qkv);
    ops.attention_forward(attention_, s.qkv, s.attended, s.log_sum_exp);
    ops.linear({n_, c_, c_}, s.attended, w[kProjectionWeight], w[kProjectionBias], s.middle);
    ops.add_norm_forward(
        s.middle, memory.input, s.middle,
        {s.middle, w[kNorm2Weight], w[kNorm2Bias], s.normed2, s.mean2, s.rstd2, n_, c_, epsilon_});
    ops.linear_gelu({n_, c_, 4 * c_}, s.normed2, w[kUpWeight], w[kUpBias], s.up, s.activated);
    ops.linear({n_, 4 * c_, c_}, s.activated, w[kDownWeight], w[kDownBias], output);
    ops.add(output, s.middle, output, n_ * c_);
  }

  void backward_input(Ops& ops, const LayerParameters& parameters, const Memory& memory,
                      float* gradient) const override {
    const auto& w = parameters.weights;
    const auto& g = parameters.gradients;
    const Stash s = stash(memory.stash);
    const Pending p = pending(memory.pending);
    float* scratch = memory.scratch;  // [N, C]
    ops.copy(gradient, p.dout, n_ * c_);
    linear_input_gradient(ops, gradient, w[kDownWeight], p.dup, 4 * c_, c_);
    ops.gelu_backward(s.up, p.dup, n_ * 4 * c_);
    linear_input_gradient(ops, p.dup, w[kUpWeight], scratch, c_, 4 * c_);
    ops.norm_backward({scratch, s.middle, w[kNorm2Weight], s.mean2, s.rstd2, gradient,
                       g[kNorm2Weight], g[kNorm2Bias], n_, c_});
    ops.copy(gradient, p.dmiddle, n_ * c_);
    linear_input_gradient(ops, gradient, w[kProjectionWeight], scratch, c_, c_);
    ops.attention_backward(attention_, s.qkv, s.attended, s.log_sum_exp, scratch, p.dqkv);
    linear_input_gradient(ops, p.dqkv, w[kQkvWeight], scratch, c_, 3 * c_);
    ops.norm_backward({scratch, memory.input, w[kNorm1Weight], s.mean1, s.rstd1, gradient,
                       g[kNorm1Weight], g[kNorm1Bias], n_, c_});
  }

  void backward_weight(Ops& ops, const LayerParameters& parameters,
                       const Memory& memory) const override {
    const auto& g = parameters.gradients;
    const Stash s = stash(memory.stash);
    const Pending p = pending(memory.pending);
    ops.linear_weight_gradient({n_, 4 * c_, c_}, s.activated, p.dout, g[kDownWeight], g[kDownBias]);
    ops.linear_weight_gradient({n_, c_, 4 * c_}, s.normed2, p.dup, g[kUpWeight], g[kUpBias]);
    ops.linear_weight_gradient({n_, c_, c_}, s.attended, p.dmiddle, g[kProjectionWeight],
                               g[kProjectionBias]);
    ops.linear_weight_gradient({n_, c_, 3 * c_}, s.normed1, p.dqkv, g[kQkvWeight], g[kQkvBias]);
    // A key bias adds the same number to all scores of a query, which softmax ignores: its gradient
    // is zero. What rounding leaves there would be blown up by Adam to full steps, different ones
    // for every layout.
    ops.zero(g[kQkvBias] + c_, c_);
  }

 private:
  struct Stash {
    float *mean1, *rstd1, *mean2, *rstd2;  // [N]
    float* log_sum_exp;                    // [B, H, T]
    float* normed1;                        // [N, C]
    float* qkv;                            // [N, 3C]
    float* attended;                       // [N, C]
    float* middle;                         // [N, C]
    float* normed2;                        // [N, C]
    float* up;                             // [N, 4C]
    float* activated;                      // [N, 4C]
  };
  struct Pending {
    float* dout;     // [N, C]
    float* dup;      // [N, 4C]
    float* dmiddle;  // [N, C]
    float* dqkv;     // [N, 3C]
  };

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
    s.up = take(4 * nc);
    s.activated = take(4 * nc);
    s.log_sum_exp = take(n_ * attention_.heads);
    s.mean1 = take(n_);
    s.rstd1 = take(n_);
    s.mean2 = take(n_);
    s.rstd2 = take(n_);
    return s;
  }
  Pending pending(float* base) const {
    const int64_t nc = n_ * c_;
    return {base, base + nc, base + 5 * nc, base + 6 * nc};
  }

  void linear_input_gradient(Ops& ops, const float* dy, const float* weight, float* dx, int64_t in,
                             int64_t out) const {
    ops.matmul({n_, in, out, false, true, false}, dy, weight, dx);
  }
  int64_t n_, c_;
  Ops::Attention attention_;
  float epsilon_;
};

}  // namespace

std::unique_ptr<Layer> make_block(const LayerShape& shape) {
  return std::make_unique<Block>(shape);
}

}  // namespace skein::gpu
