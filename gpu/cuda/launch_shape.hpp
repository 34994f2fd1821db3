#pragma once

#include <cstdint>
#include <initializer_list>

/// Index arithmetic that launchers, kernels and tests share. Plain C++17 without CUDA.
namespace skein::gpu::kernels {

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks of a kernel whose threads stride over `count` elements, `per_block` of them at a time:
/// enough to fill a large device several times over, and no more, as a block costs time to start.
constexpr int64_t kStridingBlocksMax = 132 * 16;  // Multiprocessors of an H200, 16 blocks each.
constexpr int64_t striding_blocks(int64_t count, int64_t per_block) {
  const int64_t blocks = ceil_divide(count, per_block);
  return blocks < kStridingBlocksMax ? blocks : kStridingBlocksMax;
}

/// Sums over rows are made slab by slab, then over the slabs in order. How many there are depends
/// on the number of rows only, so the sums have the same bits on every device.
constexpr int64_t kSlabRowsMin = 64;
constexpr int64_t kSlabsMax = 128;
constexpr int64_t slab_count(int64_t rows) {
  const int64_t slabs = ceil_divide(rows, kSlabRowsMin);
  return slabs < 1 ? 1 : (slabs < kSlabsMax ? slabs : kSlabsMax);
}
/// The same of a norm's backward, in which a block makes a slab: two for each multiprocessor of an
/// H200 that are as many as fit.
constexpr int64_t kNormSlabRowsMin = 16;
constexpr int64_t kNormSlabsMax = 264;
constexpr int64_t norm_slab_count(int64_t rows) {
  const int64_t slabs = ceil_divide(rows, kNormSlabRowsMin);
  return slabs < 1 ? 1 : (slabs < kNormSlabsMax ? slabs : kNormSlabsMax);
}
constexpr int64_t slab_rows(int64_t rows) { return ceil_divide(rows, slab_count(rows)); }

/// Elements of a tensor that one block handles in kernels over many tensors; a multiple of 4, so
/// that vectors of an aligned tensor stay whole.
constexpr int64_t kChunkElements = 16384;

/// A piece of one of several tensors.
struct Chunk {
  int32_t tensor;
  int32_t count;  // <= kChunkElements
  int64_t begin;
};

/// One tensor of an AdamW step, in device memory.
struct AdamwSlice {
  float* weight;
  const float* gradient;
  float* moment1;
  float* moment2;
  uint16_t* rounded;  // bfloat16, null if there is none.
  bool decays;
};

/// Rows of one token, in ascending order: order[begin .. end).
struct TokenRows {
  int32_t token;
  int32_t begin;
  int32_t end;
};

/// The instance of the attention kernels for heads of `size`: the smallest padded size that holds
/// it, 0 if there is none.
constexpr int64_t attention_padded_size(int64_t size) {
  for (const int64_t padded : {32, 64, 96, 128, 256}) {
    if (size >= 1 && size <= padded) return padded;
  }
  return 0;
}
/// The largest heads whose sums fit in the registers of a warp with tensor cores. Larger ones take
/// the kernels without.
constexpr int64_t kTensorCoreHeadMax = 128;

/// Attention with H heads of queries and K of keys and values, of D = `size` channels each. H / K
/// heads of queries in a row share one of keys and values.
struct AttentionShape {
  int64_t batch = 0, seq_len = 0, heads = 0, kv_heads = 0, size = 0;
};

/// Where head `index` of [batch * heads] lies in qkv [B, T, (H + 2 K) D] and in [B, T, H D].
struct HeadOffsets {
  int64_t q, k, v;  // In qkv; k and v may be those of other heads, too.
  int64_t out;
  int64_t qkv_stride, out_stride;  // From one token to the next.
};
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr HeadOffsets
    head_offsets(const AttentionShape& s, int64_t index) {
  const int64_t sample = index / s.heads;
  const int64_t head = index % s.heads;
  const int64_t out_stride = s.heads * s.size;
  const int64_t key_width = s.kv_heads * s.size;
  const int64_t qkv_stride = out_stride + 2 * key_width;
  const int64_t begin = sample * s.seq_len * qkv_stride;
  const int64_t k = begin + out_stride + head / (s.heads / s.kv_heads) * s.size;
  return {begin + head * s.size,
          k,
          k + key_width,
          sample * s.seq_len * out_stride + head * s.size,
          qkv_stride,
          out_stride};
}

}  // namespace skein::gpu::kernels
