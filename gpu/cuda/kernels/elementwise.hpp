#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/exact_sum.hpp"
#include "gpu/numbers.hpp"

/// Launchers: they allocate nothing, wait for nothing and leave errors to cudaGetLastError. All
/// pointers are device memory, row-major, aligned to one number; counts may be 0. Numbers of one
/// call have one type, of b bytes each.
namespace skein::gpu::kernels {

/// y [rows, columns]: every row is bias [columns]. Bytes: b rows columns written.
void fill_rows(ConstNumbers bias, Numbers y, int64_t rows, int64_t columns, cudaStream_t stream);

/// y = a + b; y may be a or b. Bytes: 3 b count; FLOPs: count.
void add(ConstNumbers a, ConstNumbers b, Numbers y, int64_t count, cudaStream_t stream);

/// y = gelu(x), the tanh form. Bytes: 2 b count; FLOPs: about 10 count and two special functions.
void gelu_forward(ConstNumbers x, Numbers y, int64_t count, cudaStream_t stream);

/// dy *= gelu'(x). Bytes: 3 b count; FLOPs: about 16 count and two special functions.
void gelu_backward(ConstNumbers x, Numbers dy, int64_t count, cudaStream_t stream);

/// to = from, of the other type; to bfloat16 rounded to nearest even. Bytes: 6 count.
void convert(ConstNumbers from, Numbers to, int64_t count, cudaStream_t stream);

/// `Ops::move_to_sums`. Bytes: 24 count; FLOPs: 3 count, in float64.
void move_to_sums(const ExactSum& sum, cudaStream_t stream);
/// `Ops::add_sums`. Bytes: 24 count; FLOPs: count, in float64.
void add_sums(const double* from, double* to, int64_t count, cudaStream_t stream);
/// `Ops::round_sums`. Bytes: 12 count.
void round_sums(const double* sums, float* values, int64_t count, cudaStream_t stream);

}  // namespace skein::gpu::kernels
