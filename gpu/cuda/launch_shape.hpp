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

/// Where head `index` of [batch * heads] lies in qkv [B, T, 3C] and in [B, T, C].
struct HeadOffsets {
  int64_t qkv;  // The offset of q; k and v are C and 2C further.
  int64_t out;
};
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr HeadOffsets
    head_offsets(int64_t index, int64_t seq_len, int64_t heads, int64_t channels) {
  const int64_t sample = index / heads;
  const int64_t head = index % heads;
  const int64_t size = channels / heads;
  return {sample * seq_len * 3 * channels + head * size, sample * seq_len * channels + head * size};
}

}  // namespace skein::gpu::kernels
