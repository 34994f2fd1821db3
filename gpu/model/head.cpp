#include "gpu/model/head.hpp"

#include <algorithm>

namespace skein::gpu {
namespace {

int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace

Head::Head(const LayerShape& shape, const LogitsLayout& layout)
    : shape_(shape),
      stride_(round_up(shape.model.vocab_size, layout.stride_multiple)),
      piece_rows_(std::clamp<int64_t>(layout.numbers_max / shape.model.vocab_size, 1,
                                      std::min(layout.rows_max, shape.tokens()))) {}

int64_t Head::scratch_numbers() const { return 2 * shape_.activations() + piece_rows_ * stride_; }

int64_t Head::statistics_floats() const { return 2 * shape_.tokens(); }

Head::Scratch Head::take(const Memory& memory) const {
  Scratch s{};
  s.normed = memory.scratch;
  s.dnormed = s.normed + shape_.activations();
  s.logits = s.dnormed + shape_.activations();
  s.rstd = memory.statistics;
  if (!plans::has_rms_norm(shape_.model)) s.mean = s.rstd + shape_.tokens();
  return s;
}

void Head::forward(Ops& ops, const Parameters& parameters, ConstNumbers input,
                   std::span<const int32_t> targets, float scale, const Memory& memory,
                   Numbers gradient, const Loss& loss) const {
  const Scratch s = take(memory);
  const int64_t n = shape_.tokens(), c = shape_.model.channels, v = shape_.model.vocab_size;
  ops.norm_forward({input, parameters.norm_weight, parameters.norm_bias, s.normed, s.mean, s.rstd,
                    n, c, static_cast<float>(shape_.model.norm_epsilon)});
  for (int64_t begin = 0; begin < n; begin += piece_rows_) {
    const int64_t rows = std::min(piece_rows_, n - begin);
    const ConstNumbers normed = s.normed + begin * c;
    ops.matmul({.m = rows, .n = v, .k = c, .transpose_b = true, .c_stride = stride_}, normed,
               parameters.matrix, s.logits);
    ops.cross_entropy({targets.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)), v,
                       stride_, scale, loss.sum, loss.tokens},
                      s.logits);
    if (gradient.is_null()) continue;
    ops.matmul({.m = rows, .n = c, .k = v, .a_stride = stride_}, s.logits, parameters.matrix,
               s.dnormed + begin * c);
    ops.matmul(
        {.m = v, .n = c, .k = rows, .transpose_a = true, .accumulate = true, .a_stride = stride_},
        s.logits, normed, parameters.dmatrix);
  }
  if (gradient.is_null()) return;
  ops.norm_backward({s.dnormed, input, parameters.norm_weight, s.mean, s.rstd, nullptr, gradient,
                     parameters.dnorm_weight, parameters.dnorm_bias, n, c});
}

void Head::logits(Ops& ops, const Parameters& parameters, ConstNumbers input, int64_t row,
                  const Memory& memory, std::span<float> logits) const {
  const Scratch s = take(memory);
  const int64_t c = shape_.model.channels, v = shape_.model.vocab_size;
  ops.norm_forward({input + row * c, parameters.norm_weight, parameters.norm_bias, s.normed, s.mean,
                    s.rstd, 1, c, static_cast<float>(shape_.model.norm_epsilon)});
  ops.matmul({.m = 1, .n = v, .k = c, .transpose_b = true, .c_stride = stride_}, s.normed,
             parameters.matrix, s.logits);
  ops.copy_out(s.logits, logits);
}

}  // namespace skein::gpu
