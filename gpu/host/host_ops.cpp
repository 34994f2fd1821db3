#include "gpu/host/host_ops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gpu/host/attention.hpp"
#include "gpu/host/cached_attention.hpp"
#include "gpu/host/loops.hpp"
#include "gpu/host/products.hpp"
#include "plans/base/check.hpp"

namespace skein::gpu {
namespace {

/// Ranges of a product's rows and of loops over elements start at multiples of these, so that
/// vectors stay whole.
constexpr int64_t kProductGrain = 16;
constexpr int64_t kElementGrain = 4096;
constexpr int64_t kColumnGrain = 64;
/// Squares are summed in pieces of this size, each by one thread: the order does not depend on how
/// many threads there are.
constexpr int64_t kSumPiece = 1 << 16;

/// Here and not with the other loops: they are compiled as if there were no NaN, and order, as of
/// the rounder, did not matter.
double exact_part(float value, double limit) {
  const double rounded = (double{value} + kExactRounder) - kExactRounder;
  return std::abs(double{value}) <= limit ? rounded : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void HostOps::matmul(const Matmul& asked, ConstNumbers a, ConstNumbers b, Numbers c) {
  const Matmul shape = asked.with_strides();
  const float* a_floats = a.floats();
  const float* b_floats = b.floats();
  float* c_floats = c.floats();
  // Rows of c are shared out; a tall product keeps all of b in every core's cache.
  pool_.for_ranges(shape.m, kProductGrain, [&](int64_t begin, int64_t end) {
    Matmul part = shape;
    part.m = end - begin;
    const float* a_part = a_floats + (shape.transpose_a ? begin : begin * shape.a_stride);
    matmul_on_this_thread(part, 1.0F, {a_part, shape.a_stride}, {b_floats, shape.b_stride},
                          {c_floats + begin * shape.c_stride, shape.c_stride});
  });
}

void HostOps::fill_rows(ConstNumbers bias, Numbers y, int64_t rows, int64_t columns) {
  pool_.for_ranges(rows, kProductGrain, [&](int64_t begin, int64_t end) {
    loops::fill_rows(bias.floats(), y.floats() + begin * columns, end - begin, columns);
  });
}

void HostOps::add_column_sums(ConstNumbers dy, float* db, int64_t rows, int64_t columns) {
  pool_.for_ranges(columns, kColumnGrain, [&](int64_t begin, int64_t end) {
    loops::add_column_sums(dy.floats() + begin, db + begin, rows, end - begin, columns);
  });
}

void HostOps::norm_forward(const NormForward& norm) {
  const auto loop = norm.mean != nullptr ? loops::layer_norm_forward : loops::rms_norm_forward;
  pool_.for_ranges(norm.rows, kProductGrain,
                   [&](int64_t begin, int64_t end) { loop(norm, begin, end); });
}

void HostOps::norm_backward(const NormBackward& norm) {
  const bool is_layer_norm = norm.mean != nullptr;
  const auto input =
      is_layer_norm ? loops::layer_norm_backward_input : loops::rms_norm_backward_input;
  const auto weight =
      is_layer_norm ? loops::layer_norm_backward_weight : loops::rms_norm_backward_weight;
  pool_.for_ranges(norm.rows, kProductGrain,
                   [&](int64_t begin, int64_t end) { input(norm, begin, end); });
  pool_.for_ranges(norm.columns, kColumnGrain,
                   [&](int64_t begin, int64_t end) { weight(norm, begin, end); });
}

void HostOps::gelu_forward(ConstNumbers x, Numbers y, int64_t count) {
  pool_.for_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
    loops::gelu_forward(x.floats() + begin, y.floats() + begin, end - begin);
  });
}

void HostOps::gelu_backward(ConstNumbers x, Numbers dy, int64_t count) {
  pool_.for_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
    loops::gelu_backward(x.floats() + begin, dy.floats() + begin, end - begin);
  });
}

void HostOps::swiglu_forward(const Swiglu& shape, ConstNumbers x, Numbers y) {
  const int64_t width = shape.width;
  pool_.for_ranges(shape.rows, kProductGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = x.floats() + r * 2 * width;
      loops::swiglu_forward(gate, gate + width, y.floats() + r * width, width);
    }
  });
}

void HostOps::swiglu_backward(const Swiglu& shape, ConstNumbers x, ConstNumbers dy, Numbers dx) {
  const int64_t width = shape.width;
  pool_.for_ranges(shape.rows, kProductGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = x.floats() + r * 2 * width;
      float* dgate = dx.floats() + r * 2 * width;
      loops::swiglu_backward(gate, gate + width, dy.floats() + r * width, dgate, dgate + width,
                             width);
    }
  });
}

void HostOps::rotate(const Rotation& rotation, Numbers qkv) {
  const Attention& shape = rotation.shape;
  const int64_t size = shape.head_size;
  const float direction = rotation.is_opposite ? -1.0F : 1.0F;
  pool_.for_ranges(shape.batch * shape.seq_len, kProductGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* turns = rotation.turns + r % shape.seq_len * size;
      float* row = qkv.floats() + r * shape.qkv_width();
      // The heads of q and then those of k.
      for (int64_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
        loops::rotate(turns, direction, row + h * size, size / 2);
      }
    }
  });
}

void HostOps::attention_forward(const Attention& shape, ConstNumbers qkv, Numbers out,
                                float* log_sum_exp) {
  gpu::attention_forward(pool_, shape, qkv.floats(), out.floats(), log_sum_exp);
}

void HostOps::attention_backward(const Attention& shape, ConstNumbers qkv, ConstNumbers out,
                                 const float* log_sum_exp, ConstNumbers dout, Numbers dqkv) {
  gpu::attention_backward(pool_, shape, qkv.floats(), out.floats(), log_sum_exp, dout.floats(),
                          dqkv.floats());
}

void HostOps::append_to_cache(const Attention& shape, ConstNumbers qkv,
                              const KeyValueCache& cache) {
  SKEIN_CHECK(shape.batch == 1 && cache.length + shape.seq_len <= cache.capacity) << cache.length;
  gpu::append_to_cache(shape, qkv.floats(), cache);
}

void HostOps::attend_to_cache(const Attention& shape, ConstNumbers qkv, const KeyValueCache& cache,
                              Numbers out) {
  const auto positions = static_cast<size_t>(cache.length + shape.seq_len);
  if (scores_.size() < positions) scores_.resize(positions);
  gpu::attend_to_cache(shape, qkv.floats(), cache, scores_, out.floats());
}

void HostOps::embedding_forward(const Embedding& shape, const float* wte, const float* wpe,
                                Numbers y) {
  const auto rows = static_cast<int64_t>(shape.tokens.size());
  const int64_t c = shape.channels;
  pool_.for_ranges(rows, kProductGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* token = wte + shape.tokens[static_cast<size_t>(r)] * c;
      if (wpe == nullptr) {
        std::copy_n(token, c, y.floats() + r * c);
      } else {
        loops::add(token, wpe + r % shape.seq_len * c, y.floats() + r * c, c);
      }
    }
  });
}

void HostOps::embedding_backward(const Embedding& shape, ConstNumbers dy, float* dwte,
                                 float* dwpe) {
  const auto rows = static_cast<int64_t>(shape.tokens.size());
  const int64_t stride = shape.channels;
  // Columns are shared out, so that every element is summed in the order of the rows.
  pool_.for_ranges(stride, kColumnGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = dy.floats() + r * stride + begin;
      float* token = dwte + shape.tokens[static_cast<size_t>(r)] * stride + begin;
      loops::add(token, from, token, end - begin);
      if (dwpe == nullptr) continue;
      float* position = dwpe + r % shape.seq_len * stride + begin;
      loops::add(position, from, position, end - begin);
    }
  });
}

void HostOps::cross_entropy(const CrossEntropy& shape, Numbers logits) {
  const auto rows = static_cast<int64_t>(shape.targets.size());
  std::vector<double> losses(static_cast<size_t>(rows), 0.0);
  pool_.for_ranges(rows, kProductGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = logits.floats() + r * shape.stride;
      const int32_t target = shape.targets[static_cast<size_t>(r)];
      if (target < 0) {
        std::fill_n(row, shape.vocab_size, 0.0F);
      } else {
        losses[static_cast<size_t>(r)] =
            loops::cross_entropy_row(row, shape.vocab_size, target, shape.scale);
      }
    }
  });
  for (int64_t r = 0; r < rows; ++r) {
    *shape.loss_sum += losses[static_cast<size_t>(r)];
    *shape.loss_tokens += shape.targets[static_cast<size_t>(r)] >= 0 ? 1 : 0;
  }
}

void HostOps::zero(Numbers x, int64_t count) {
  pool_.for_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
    std::fill(x.floats() + begin, x.floats() + end, 0.0F);
  });
}

void HostOps::copy(ConstNumbers from, Numbers to, int64_t count) {
  pool_.for_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
    std::copy(from.floats() + begin, from.floats() + end, to.floats() + begin);
  });
}

void HostOps::add(ConstNumbers a, ConstNumbers b, Numbers y, int64_t count) {
  pool_.for_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
    loops::add(a.floats() + begin, b.floats() + begin, y.floats() + begin, end - begin);
  });
}

void HostOps::move_to_sums(const ExactSum& sum) {
  pool_.for_ranges(sum.count, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum.sums[i] += exact_part(sum.values[i], sum.limit);
    std::fill(sum.values + begin, sum.values + end, 0.0F);
  });
}

void HostOps::add_sums(const double* from, double* to, int64_t count) {
  pool_.for_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] += from[i];
  });
}

void HostOps::round_sums(const double* sums, float* values, int64_t count) {
  pool_.for_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = static_cast<float>(sums[i]);
  });
}

void HostOps::add_sum_of_squares(const float* x, int64_t count, double* result) {
  const int64_t pieces = (count + kSumPiece - 1) / kSumPiece;
  std::vector<double> sums(static_cast<size_t>(pieces), 0.0);
  pool_.for_ranges(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      sums[static_cast<size_t>(p)] =
          loops::sum_of_squares(x + p * kSumPiece, std::min(kSumPiece, count - p * kSumPiece));
    }
  });
  for (double sum : sums) *result += sum;
}

void HostOps::adamw(const Adamw& options, const AdamwTensor& tensor) {
  SKEIN_CHECK(tensor.rounded.is_null()) << "the host has no rounded weights";
  Adamw own = options;
  if (!tensor.decays) own.decay = 0;
  pool_.for_ranges(tensor.count, kElementGrain, [&](int64_t begin, int64_t end) {
    loops::adamw(own, tensor.weight + begin, tensor.gradient + begin, tensor.moment1 + begin,
                 tensor.moment2 + begin, end - begin);
  });
}

void HostOps::sgd(const Sgd& options, const SgdTensor& tensor) {
  SKEIN_CHECK(tensor.rounded.is_null()) << "the host has no rounded weights";
  pool_.for_ranges(tensor.count, kElementGrain, [&](int64_t begin, int64_t end) {
    loops::sgd(options, tensor.weight + begin, tensor.gradient + begin, tensor.velocity + begin,
               end - begin);
  });
}

void HostOps::copy_in(std::span<const float> from, Numbers to) {
  copy(from.data(), to, static_cast<int64_t>(from.size()));
}

void HostOps::copy_out(ConstNumbers from, std::span<float> to) {
  copy(from, to.data(), static_cast<int64_t>(to.size()));
}

}  // namespace skein::gpu
