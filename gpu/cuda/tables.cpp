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
  RowsByToken result;
  if (tokens.empty()) return result;
  // By counting, as there are not many more symbols than rows: where each token's rows end.
  const auto highest = static_cast<size_t>(*std::max_element(tokens.begin(), tokens.end()));
  std::vector<int32_t> ends(highest + 2);
  for (const int32_t token : tokens) ++ends[static_cast<size_t>(token) + 1];
  for (size_t token = 0; token <= highest; ++token) {
    const int32_t begin = ends[token], count = ends[token + 1];
    if (count > 0) result.segments.push_back({static_cast<int32_t>(token), begin, begin + count});
    ends[token + 1] += begin;
  }
  result.order.resize(tokens.size());
  // From here on `ends` of a token are where its next row goes.
  for (size_t row = 0; row < tokens.size(); ++row) {
    int32_t& next = ends[static_cast<size_t>(tokens[row])];
    result.order[static_cast<size_t>(next++)] = static_cast<int32_t>(row);
  }
  return result;
}

}  // namespace skein::gpu
