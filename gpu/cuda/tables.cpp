#include "gpu/cuda/tables.hpp"

#include <algorithm>

namespace skein::gpu {

std::vector<kernels::Chunk> cut_in_chunks(std::span<const int64_t> counts) {
  std::vector<kernels::Chunk> chunks;
  for (size_t tensor = 0; tensor < counts.size(); ++tensor) {
    for (int64_t begin = 0; begin < counts[tensor]; begin += kernels::kChunkElements) {
      const int64_t count = std::min(kernels::kChunkElements, counts[tensor] - begin);
      chunks.push_back({static_cast<int32_t>(tensor), static_cast<int32_t>(count), begin});
    }
  }
  return chunks;
}

RowsByToken group_rows_by_token(std::span<const int32_t> tokens) {
  // Token and row in one number, as such numbers sort fastest.
  std::vector<uint64_t> keys(tokens.size());
  for (size_t row = 0; row < tokens.size(); ++row) {
    keys[row] = uint64_t{static_cast<uint32_t>(tokens[row])} << 32 | row;
  }
  std::sort(keys.begin(), keys.end());
  RowsByToken result;
  result.order.reserve(keys.size());
  for (uint64_t key : keys) {
    const auto token = static_cast<int32_t>(key >> 32);
    const auto at = static_cast<int32_t>(result.order.size());
    if (result.segments.empty() || result.segments.back().token != token) {
      result.segments.push_back({token, at, at});
    }
    result.order.push_back(static_cast<int32_t>(key & 0xFFFFFFFFU));
    ++result.segments.back().end;
  }
  return result;
}

}  // namespace skein::gpu
