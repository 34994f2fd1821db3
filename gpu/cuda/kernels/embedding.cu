#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/embedding.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 8;  // Rows that are on their way from memory before the first is added.

/// One block per row, threads over its columns.
template <class T>
__global__ void forward_kernel(const int32_t* __restrict__ tokens, const float* __restrict__ wte,
                               const float* __restrict__ wpe, T* __restrict__ y, int64_t seq_len,
                               int64_t columns) {
  const int64_t row = blockIdx.x;
  const float* token = wte + int64_t{tokens[row]} * columns;
  const float* position = wpe == nullptr ? nullptr : wpe + row % seq_len * columns;
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) {
    store(position == nullptr ? token[c] : token[c] + position[c], y + row * columns + c);
  }
}

/// One thread per column of a segment, grid = (segments, ceil(columns / kThreads)).
template <class T>
__global__ void tokens_kernel(TokenScatter scatter, const T* dy) {
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= scatter.columns) return;
  const TokenRows segment = scatter.segments[blockIdx.x];
  float* to = scatter.dwte + int64_t{segment.token} * scatter.columns + column;
  float sum = *to;
  int32_t next = segment.begin;
  for (; next + kAhead <= segment.end; next += kAhead) {
    float values[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      values[i] = load(dy + int64_t{scatter.order[next + i]} * scatter.columns + column);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum += values[i];
  }
  for (; next < segment.end; ++next) {
    sum += load(dy + int64_t{scatter.order[next]} * scatter.columns + column);
  }
  *to = sum;
}

/// One thread per column of a position, grid = (positions, ceil(columns / kThreads)).
template <class T>
__global__ void positions_kernel(const T* __restrict__ dy, float* __restrict__ dwpe, int64_t rows,
                                 int64_t seq_len, int64_t columns) {
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= columns) return;
  const int64_t position = blockIdx.x;
  float sum = dwpe[position * columns + column];
  for (int64_t row = position; row < rows; row += seq_len) sum += load(dy + row * columns + column);
  dwpe[position * columns + column] = sum;
}

dim3 grid_of(int64_t items, int64_t columns) {
  return dim3(static_cast<unsigned>(items), static_cast<unsigned>(ceil_divide(columns, kThreads)));
}

template <class T>
void forward_as(const int32_t* tokens, const float* wte, const float* wpe, T* y, int64_t rows,
                int64_t seq_len, int64_t columns, cudaStream_t stream) {
  forward_kernel<T>
      <<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(tokens, wte, wpe, y, seq_len, columns);
}

template <class T>
void tokens_as(const TokenScatter& scatter, cudaStream_t stream) {
  const dim3 grid = grid_of(scatter.segment_count, scatter.columns);
  tokens_kernel<T><<<grid, kThreads, 0, stream>>>(scatter, numbers_of<T>(scatter.dy));
}

template <class T>
void positions_as(const T* dy, float* dwpe, int64_t rows, int64_t seq_len, int64_t columns,
                  cudaStream_t stream) {
  const dim3 grid = grid_of(rows < seq_len ? rows : seq_len, columns);
  positions_kernel<T><<<grid, kThreads, 0, stream>>>(dy, dwpe, rows, seq_len, columns);
}

}  // namespace

void embedding_forward(const int32_t* tokens, const float* wte, const float* wpe, Numbers y,
                       int64_t rows, int64_t seq_len, int64_t columns, cudaStream_t stream) {
  if (rows == 0) return;
  if (is_float32(y)) {
    forward_as(tokens, wte, wpe, numbers_of<float>(y), rows, seq_len, columns, stream);
  } else {
    forward_as(tokens, wte, wpe, numbers_of<__nv_bfloat16>(y), rows, seq_len, columns, stream);
  }
}

void embedding_backward_tokens(const TokenScatter& scatter, cudaStream_t stream) {
  if (scatter.segment_count == 0) return;
  is_float32(scatter.dy) ? tokens_as<float>(scatter, stream)
                         : tokens_as<__nv_bfloat16>(scatter, stream);
}

void embedding_backward_positions(ConstNumbers dy, float* dwpe, int64_t rows, int64_t seq_len,
                                  int64_t columns, cudaStream_t stream) {
  if (rows == 0) return;
  if (is_float32(dy)) {
    positions_as(numbers_of<float>(dy), dwpe, rows, seq_len, columns, stream);
  } else {
    positions_as(numbers_of<__nv_bfloat16>(dy), dwpe, rows, seq_len, columns, stream);
  }
}

}  // namespace skein::gpu::kernels
