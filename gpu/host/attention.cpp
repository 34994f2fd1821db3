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

/// One (sample, head) pair: where its parts lie in the packed tensors.
struct Head {
  Head(const Ops::Attention& shape, int64_t index)
      : size(shape.channels / shape.heads), qkv_stride(3 * shape.channels) {
    const int64_t sample = index / shape.heads;
    const int64_t head = index % shape.heads;
    qkv_offset = sample * shape.seq_len * qkv_stride + head * size;
    out_offset = sample * shape.seq_len * shape.channels + head * size;
    row_offset = index * shape.seq_len;
  }
  int64_t size;  // D
  int64_t qkv_stride;
  int64_t qkv_offset;  // The offset of q in qkv; k and v are C and 2C further.
  int64_t out_offset;  // In [B, T, C].
  int64_t row_offset;  // In [B, H, T].
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
  const float* q = qkv + head.qkv_offset;
  const float* k = q + shape.channels;
  const float* v = k + shape.channels;
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
                          {out + head.out_offset + begin * shape.channels, shape.channels});
  }
}

struct BackwardTensors {
  const float *qkv, *out, *log_sum_exp, *dout;
  float* dqkv;
};

void backward_block(const Ops::Attention& shape, const Head& head, const Block& block,
                    const BackwardTensors& tensors) {
  const int64_t stride = head.qkv_stride;
  const float* q = tensors.qkv + head.qkv_offset;
  const float* k = q + shape.channels;
  const float* v = k + shape.channels;
  float* dq = tensors.dqkv + head.qkv_offset;
  float* dk = dq + shape.channels;
  float* dv = dk + shape.channels;
  const int64_t out_begin = head.out_offset + block.begin * shape.channels;
  const float* dout = tensors.dout + out_begin;
  float* p = scratch(kBlockRows * shape.seq_len, 0).data();
  float* ds = scratch(kBlockRows * shape.seq_len, 1).data();
  scores_of(head, block, q, k, p);
  matmul_on_this_thread({block.rows(), block.end, head.size, false, true, false}, 1.0F,
                        {dout, shape.channels}, {v, stride}, {ds, block.end});
  const float factor = 1.0F / std::sqrt(static_cast<float>(head.size));
  for (int64_t r = 0; r < block.rows(); ++r) {
    const int64_t keys = block.begin + r + 1;
    float* p_row = p + r * block.end;
    float* ds_row = ds + r * block.end;
    loops::exp_row(p_row, keys, block.end, tensors.log_sum_exp[head.row_offset + block.begin + r]);
    const float delta = loops::dot(dout + r * shape.channels,
                                   tensors.out + out_begin + r * shape.channels, head.size);
    loops::softmax_backward_row(p_row, ds_row, keys, delta, factor);
    std::fill(ds_row + keys, ds_row + block.end, 0.0F);
  }
  matmul_on_this_thread({block.end, head.size, block.rows(), true, false, true}, 1.0F,
                        {p, block.end}, {dout, shape.channels}, {dv, stride});
  matmul_on_this_thread({block.rows(), head.size, block.end, false, false, false}, 1.0F,
                        {ds, block.end}, {k, stride}, {dq + block.begin * stride, stride});
  matmul_on_this_thread({block.end, head.size, block.rows(), true, false, true}, 1.0F,
                        {ds, block.end}, {q + block.begin * stride, stride}, {dk, stride});
}

}  // namespace

void attention_forward(ThreadPool& pool, const Ops::Attention& shape, const float* qkv, float* out,
                       float* log_sum_exp) {
  pool.for_ranges(shape.batch * shape.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      forward_head(shape, Head(shape, index), qkv, out, log_sum_exp);
    }
  });
}

void attention_backward(ThreadPool& pool, const Ops::Attention& shape, const float* qkv,
                        const float* out, const float* log_sum_exp, const float* dout,
                        float* dqkv) {
  const BackwardTensors tensors{qkv, out, log_sum_exp, dout, dqkv};
  pool.for_ranges(shape.batch * shape.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const Head head(shape, index);
      for (int64_t row = 0; row < shape.seq_len; ++row) {  // k and v gradients accumulate.
        float* dq = dqkv + head.qkv_offset + row * head.qkv_stride;
        std::fill_n(dq + shape.channels, head.size, 0.0F);
        std::fill_n(dq + 2 * shape.channels, head.size, 0.0F);
      }
      for (int64_t row = 0; row < shape.seq_len; row += kBlockRows) {
        backward_block(shape, head, {row, std::min(row + kBlockRows, shape.seq_len)}, tensors);
      }
    }
  });
}

}  // namespace skein::gpu
