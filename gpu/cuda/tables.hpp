#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu {

/// Tables that the host makes for kernels. Pure functions.

/// Cuts tensors of `counts` elements into chunks of at most kChunkElements, in order.
std::vector<kernels::Chunk> cut_in_chunks(std::span<const int64_t> counts);

/// Rows by their token: every token that occurs once, in ascending order, with its rows in
/// ascending order.
struct RowsByToken {
  std::vector<int32_t> order;                // Numbers of rows.
  std::vector<kernels::TokenRows> segments;  // Ranges of `order`.
};
RowsByToken group_rows_by_token(std::span<const int32_t> tokens);

}  // namespace skein::gpu
