#include "gpu/cuda/kernels/embedding.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 8;  // Rows that are on their way from memory before the first is added.

/// One block per row, threads over its columns.
__global__ void forward_kernel(const int32_t* __restrict__ tokens, const float* __restrict__ wte,
                               const float* __restrict__ wpe, float* __restrict__ y,
                               int64_t seq_len, int64_t columns) {
  const int64_t row = blockIdx.x;
  const float* token = wte + int64_t{tokens[row]} * columns;
  const float* position = wpe == nullptr ? nullptr : wpe + row % seq_len * columns;
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) {
    y[row * columns + c] = position == nullptr ? token[c] : token[c] + position[c];
  }
}

/// One thread per column of a segment, grid = (segments, ceil(columns / kThreads)).
__global__ void tokens_kernel(TokenScatter scatter) {
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
      values[i] = scatter.dy[int64_t{scatter.order[next + i]} * scatter.columns + column];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum += values[i];
  }
  for (; next < segment.end; ++next) {
    sum += scatter.dy[int64_t{scatter.order[next]} * scatter.columns + column];
  }
  *to = sum;
}

/// One thread per column of a position, grid = (positions, ceil(columns / kThreads)).
__global__ void positions_kernel(const float* __restrict__ dy, float* __restrict__ dwpe,
                                 int64_t rows, int64_t seq_len, int64_t columns) {
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= columns) return;
  const int64_t position = blockIdx.x;
  float sum = dwpe[position * columns + column];
  for (int64_t row = position; row < rows; row += seq_len) sum += dy[row * columns + column];
  dwpe[position * columns + column] = sum;
}

dim3 grid_of(int64_t items, int64_t columns) {
  return dim3(static_cast<unsigned>(items), static_cast<unsigned>(ceil_divide(columns, kThreads)));
}

}  // namespace

void embedding_forward(const int32_t* tokens, const float* wte, const float* wpe, float* y,
                       int64_t rows, int64_t seq_len, int64_t columns, cudaStream_t stream) {
  if (rows == 0) return;
  forward_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(tokens, wte, wpe, y, seq_len,
                                                                       columns);
}

void embedding_backward_tokens(const TokenScatter& scatter, cudaStream_t stream) {
  if (scatter.segment_count == 0) return;
  tokens_kernel<<<grid_of(scatter.segment_count, scatter.columns), kThreads, 0, stream>>>(scatter);
}

void embedding_backward_positions(const float* dy, float* dwpe, int64_t rows, int64_t seq_len,
                                  int64_t columns, cudaStream_t stream) {
  if (rows == 0) return;
  const int64_t positions = rows < seq_len ? rows : seq_len;
  positions_kernel<<<grid_of(positions, columns), kThreads, 0, stream>>>(dy, dwpe, rows, seq_len,
                                                                         columns);
}

}  // namespace skein::gpu::kernels
