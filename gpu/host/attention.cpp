#include "gpu/host/attention.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gpu/host/loops.hpp"
#include "gpu/host/products.hpp"

namespace skein::gpu {
namespace {

/// Query rows whose scores are held at once: small enough to skip most of the causal half, large
/// enough for the products.  // measured, d = 32 and T = 256: 32..128 within 5%, Nov 2026
constexpr int64_t kBlockRows = 64;

/// Where one head of a sample lies in the packed tensors.
struct Head {
  Head(const Ops::Attention& shape, int64_t sample, int64_t head)
      : size(shape.head_size), qkv_stride(shape.qkv_width()), out_stride(shape.query_width()) {
    const int64_t sample_offset = sample * shape.seq_len * qkv_stride;
    const int64_t group = head / (shape.heads / shape.kv_heads);
    q_offset = sample_offset + head * size;
    k_offset = sample_offset + shape.query_width() + group * size;
    v_offset = k_offset + shape.key_width();
    out_offset = sample * shape.seq_len * out_stride + head * size;
    row_offset = (sample * shape.heads + head) * shape.seq_len;
  }
  int64_t size;  // D
  int64_t qkv_stride, out_stride;
  int64_t q_offset, k_offset, v_offset;  // In qkv; k and v may be those of other heads, too.
  int64_t out_offset;                    // In [B, T, H D].
  int64_t row_offset;                    // In [B, H, T].
};

/// Query rows [begin, end) attend to keys [0, end).
struct Block {
  int64_t begin, end;
  int64_t rows() const { return end - begin; }
};

std::vector<float>& scratch(int64_t floats, int which) {
  thread_local std::vector<float> memory[2];
  if (static_cast<int64_t>(memory[which].size()) < floats) {
    memory[which].resize(static_cast<size_t>(floats));
  }
  return memory[which];
}

/// scores [rows, end] = factor * q k^T for the block.
void scores_of(const Head& head, const Block& block, const float* q, const float* k,
               float* scores) {
  const float factor = 1.0F / std::sqrt(static_cast<float>(head.size));
  matmul_on_this_thread({block.rows(), block.end, head.size, false, true, false}, factor,
                        {q + block.begin * head.qkv_stride, head.qkv_stride}, {k, head.qkv_stride},
                        {scores, block.end});
}

void forward_head(const Ops::Attention& shape, const Head& head, const float* qkv, float* out,
                  float* log_sum_exp) {
  const float* q = qkv + head.q_offset;
  const float* k = qkv + head.k_offset;
  const float* v = qkv + head.v_offset;
  float* scores = scratch(kBlockRows * shape.seq_len, 0).data();
  for (int64_t begin = 0; begin < shape.seq_len; begin += kBlockRows) {
    const Block block{begin, std::min(begin + kBlockRows, shape.seq_len)};
    scores_of(head, block, q, k, scores);
    for (int64_t r = 0; r < block.rows(); ++r) {
      log_sum_exp[head.row_offset + begin + r] =
          loops::softmax_row(scores + r * block.end, begin + r + 1, block.end);
    }
    matmul_on_this_thread({block.rows(), head.size, block.end, false, false, false}, 1.0F,
                          {scores, block.end}, {v, head.qkv_stride},
                          {out + head.out_offset + begin * head.out_stride, head.out_stride});
  }
}

struct BackwardTensors {
  const float *qkv, *out, *log_sum_exp, *dout;
  float* dqkv;
};

void backward_block(const Ops::Attention& shape, const Head& head, const Block& block,
                    const BackwardTensors& tensors) {
  const int64_t stride = head.qkv_stride, out_stride = head.out_stride;
  const float* q = tensors.qkv + head.q_offset;
  const float* k = tensors.qkv + head.k_offset;
  const float* v = tensors.qkv + head.v_offset;
  float* dq = tensors.dqkv + head.q_offset;
  float* dk = tensors.dqkv + head.k_offset;
  float* dv = tensors.dqkv + head.v_offset;
  const int64_t out_begin = head.out_offset + block.begin * out_stride;
  const float* dout = tensors.dout + out_begin;
  float* p = scratch(kBlockRows * shape.seq_len, 0).data();
  float* ds = scratch(kBlockRows * shape.seq_len, 1).data();
  scores_of(head, block, q, k, p);
  matmul_on_this_thread({block.rows(), block.end, head.size, false, true, false}, 1.0F,
                        {dout, out_stride}, {v, stride}, {ds, block.end});
  const float factor = 1.0F / std::sqrt(static_cast<float>(head.size));
  for (int64_t r = 0; r < block.rows(); ++r) {
    const int64_t keys = block.begin + r + 1;
    float* p_row = p + r * block.end;
    float* ds_row = ds + r * block.end;
    loops::exp_row(p_row, keys, block.end, tensors.log_sum_exp[head.row_offset + block.begin + r]);
    const float delta =
        loops::dot(dout + r * out_stride, tensors.out + out_begin + r * out_stride, head.size);
    loops::softmax_backward_row(p_row, ds_row, keys, delta, factor);
    std::fill(ds_row + keys, ds_row + block.end, 0.0F);
  }
  matmul_on_this_thread({block.end, head.size, block.rows(), true, false, true}, 1.0F,
                        {p, block.end}, {dout, out_stride}, {dv, stride});
  matmul_on_this_thread({block.rows(), head.size, block.end, false, false, false}, 1.0F,
                        {ds, block.end}, {k, stride}, {dq + block.begin * stride, stride});
  matmul_on_this_thread({block.end, head.size, block.rows(), true, false, true}, 1.0F,
                        {ds, block.end}, {q + block.begin * stride, stride}, {dk, stride});
}

/// The heads that share one head of keys and values, whose gradients they add up.
void backward_group(const Ops::Attention& shape, int64_t sample, int64_t group,
                    const BackwardTensors& tensors) {
  const int64_t count = shape.heads / shape.kv_heads;
  const Head first(shape, sample, group * count);
  for (int64_t row = 0; row < shape.seq_len; ++row) {
    std::fill_n(tensors.dqkv + first.k_offset + row * first.qkv_stride, first.size, 0.0F);
    std::fill_n(tensors.dqkv + first.v_offset + row * first.qkv_stride, first.size, 0.0F);
  }
  for (int64_t n = 0; n < count; ++n) {
    const Head head(shape, sample, group * count + n);
    for (int64_t row = 0; row < shape.seq_len; row += kBlockRows) {
      backward_block(shape, head, {row, std::min(row + kBlockRows, shape.seq_len)}, tensors);
    }
  }
}

}  // namespace

void attention_forward(ThreadPool& pool, const Ops::Attention& shape, const float* qkv, float* out,
                       float* log_sum_exp) {
  pool.for_ranges(shape.batch * shape.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const Head head(shape, index / shape.heads, index % shape.heads);
      forward_head(shape, head, qkv, out, log_sum_exp);
    }
  });
}

void attention_backward(ThreadPool& pool, const Ops::Attention& shape, const float* qkv,
                        const float* out, const float* log_sum_exp, const float* dout,
                        float* dqkv) {
  const BackwardTensors tensors{qkv, out, log_sum_exp, dout, dqkv};
  pool.for_ranges(shape.batch * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      backward_group(shape, index / shape.kv_heads, index % shape.kv_heads, tensors);
    }
  });
}

}  // namespace skein::gpu
