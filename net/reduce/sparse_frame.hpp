#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace skein::net {

/// Some values of a vector, as words: the number of floats of the vector, the number k of values,
/// k ascending indices, k values. Its size follows from what the receiver knows itself, so a
/// receiver allocates before it hears from the sender, and checks the frame against it.
size_t sparse_frame_words(size_t k);

/// Writes values[indices[i]]. `frame`: of `sparse_frame_words(indices.size())`.
void write_sparse_frame(std::span<const float> values, std::span<const uint32_t> indices,
                        std::span<uint32_t> frame);
/// Writes that the sender has values that are not finite, and sends none.
void write_refusal(size_t floats, std::span<uint32_t> frame);

/// sum[index] += value, for each of a frame.
///
/// InvalidArgument   and `sum` is unchanged, if the frame is of another vector or number of values,
///                   the indices do not ascend within it, a value is not finite, or the sender
///                   refused.
absl::Status add_sparse_frame(std::span<const uint32_t> frame, std::span<float> sum);

}  // namespace skein::net
