#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/numbers.hpp"

namespace skein::gpu::kernels {

/// logits [rows, vocab_size] := (softmax - one hot of the target) * scale, rows of zeros where the
/// target is -1. losses [rows] := the rows' losses, 0 where the target is -1.
/// Bytes: 3 b rows vocab_size with b bytes for a logit: read, read again (from the second-level
/// cache while its rows fit), written. FLOPs: about 6 rows vocab_size and two special functions
/// each.
void cross_entropy(const int32_t* targets, Numbers logits, double* losses, int64_t rows,
                   int64_t vocab_size, float scale, cudaStream_t stream);

}  // namespace skein::gpu::kernels
