#include "gpu/cuda/kernels/rows.hpp"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 256;

/// Calls element(row, column) for all of them. A thread keeps its column, so that what follows from
/// it is computed once. grid = (ceil(columns / kThreads), as many as fill the device). Bound: DRAM.
template <class Element>
__global__ void for_each_in_rows_kernel(int64_t rows, int64_t columns, Element element) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= columns) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) element(row, column);
}

template <class Element>
void for_each_in_rows(int64_t rows, int64_t columns, cudaStream_t stream, Element element) {
  if (rows == 0 || columns == 0) return;
  const int64_t across = ceil_divide(columns, kThreads);
  const int64_t down = striding_blocks(rows, ceil_divide(across * rows, kStridingBlocksMax));
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  for_each_in_rows_kernel<<<grid, kThreads, 0, stream>>>(rows, columns, element);
}

__device__ float logistic(float x) { return 1.0F / (1.0F + expf(-x)); }

struct SwigluForward {
  const float* x;
  float* y;
  int64_t width;
  __device__ void operator()(int64_t row, int64_t column) const {
    const float* gate = x + row * 2 * width + column;
    y[row * width + column] = *gate * logistic(*gate) * gate[width];
  }
};

struct SwigluBackward {
  const float* x;
  const float* dy;
  float* dx;
  int64_t width;
  __device__ void operator()(int64_t row, int64_t column) const {
    const int64_t at = row * 2 * width + column;
    const float g = x[at];
    const float s = logistic(g);
    const float d = dy[row * width + column];
    dx[at] = d * x[at + width] * (s + g * s * (1.0F - s));
    dx[at + width] = d * g * s;
  }
};

/// Column p is pair p % (D / 2) of head p / (D / 2), the heads of q and then those of k.
struct Rotate {
  const float* turns;
  float direction;
  float* qkv;
  int64_t seq_len, channels, pairs;
  __device__ void operator()(int64_t row, int64_t column) const {
    const int64_t pair = column % pairs;
    const float* turn = turns + row % seq_len * 2 * pairs + pair;
    const float cosine = turn[0];
    const float sine = direction * turn[pairs];
    float* first = qkv + row * 3 * channels + column / pairs * 2 * pairs + pair;
    const float a = first[0];
    const float b = first[pairs];
    first[0] = a * cosine - b * sine;
    first[pairs] = b * cosine + a * sine;
  }
};

}  // namespace

void swiglu_forward(const float* x, float* y, int64_t rows, int64_t width, cudaStream_t stream) {
  for_each_in_rows(rows, width, stream, SwigluForward{x, y, width});
}

void swiglu_backward(const float* x, const float* dy, float* dx, int64_t rows, int64_t width,
                     cudaStream_t stream) {
  for_each_in_rows(rows, width, stream, SwigluBackward{x, dy, dx, width});
}

void rotate(const Rotation& rotation, cudaStream_t stream) {
  const AttentionShape& s = rotation.shape;
  for_each_in_rows(s.batch * s.seq_len, s.channels, stream,
                   Rotate{rotation.turns, rotation.is_opposite ? -1.0F : 1.0F, rotation.qkv,
                          s.seq_len, s.channels, s.channels / s.heads / 2});
}

}  // namespace skein::gpu::kernels
