#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

/// Launchers: they allocate nothing, wait for nothing and leave errors to cudaGetLastError. All
/// pointers are device memory, float32, row-major, aligned to 4 bytes; counts may be 0.
namespace skein::gpu::kernels {

/// y [rows, columns]: every row is bias [columns]. Bytes: 4 rows columns written.
void fill_rows(const float* bias, float* y, int64_t rows, int64_t columns, cudaStream_t stream);

/// y [rows, columns] += bias. Bytes: 8 rows columns.
void add_bias(const float* bias, float* y, int64_t rows, int64_t columns, cudaStream_t stream);

/// y = a + b; y may be a or b. Bytes: 12 count; FLOPs: count.
void add(const float* a, const float* b, float* y, int64_t count, cudaStream_t stream);

/// y = gelu(x), the tanh form. Bytes: 8 count; FLOPs: about 10 count and two special functions.
void gelu_forward(const float* x, float* y, int64_t count, cudaStream_t stream);

/// dy *= gelu'(x). Bytes: 12 count; FLOPs: about 16 count and two special functions.
void gelu_backward(const float* x, float* dy, int64_t count, cudaStream_t stream);

/// Rounds to bfloat16, given as its bits, to nearest even. Bytes: 6 count.
void to_bfloat16(const float* from, uint16_t* to, int64_t count, cudaStream_t stream);
/// Bytes: 6 count.
void from_bfloat16(const uint16_t* from, float* to, int64_t count, cudaStream_t stream);

}  // namespace skein::gpu::kernels
