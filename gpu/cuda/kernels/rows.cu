#include "gpu/cuda/kernels/element.cuh"
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

template <class T>
struct SwigluForward {
  const T* x;
  T* y;
  int64_t width;
  __device__ void operator()(int64_t row, int64_t column) const {
    const T* at = x + row * 2 * width + column;
    const float gate = load(at);
    store(gate * logistic(gate) * load(at + width), y + row * width + column);
  }
};

template <class T>
struct SwigluBackward {
  const T* x;
  const T* dy;
  T* dx;
  int64_t width;
  __device__ void operator()(int64_t row, int64_t column) const {
    const int64_t at = row * 2 * width + column;
    const float g = load(x + at);
    const float s = logistic(g);
    const float d = load(dy + row * width + column);
    store(d * load(x + at + width) * (s + g * s * (1.0F - s)), dx + at);
    store(d * g * s, dx + at + width);
  }
};

/// Column p is pair p % (D / 2) of head p / (D / 2), the heads of q and then those of k.
template <class T>
struct Rotate {
  const float* turns;
  float direction;
  T* qkv;
  int64_t seq_len, stride, pairs;
  __device__ void operator()(int64_t row, int64_t column) const {
    const int64_t pair = column % pairs;
    const float* turn = turns + row % seq_len * 2 * pairs + pair;
    const float cosine = turn[0];
    const float sine = direction * turn[pairs];
    T* first = qkv + row * stride + column / pairs * 2 * pairs + pair;
    const float a = load(first);
    const float b = load(first + pairs);
    store(a * cosine - b * sine, first);
    store(b * cosine + a * sine, first + pairs);
  }
};

template <class T>
void rotate_as(const Rotation& rotation, cudaStream_t stream) {
  const AttentionShape& s = rotation.shape;
  const int64_t pairs = s.size / 2;
  for_each_in_rows(
      s.batch * s.seq_len, (s.heads + s.kv_heads) * pairs, stream,
      Rotate<T>{rotation.turns, rotation.is_opposite ? -1.0F : 1.0F, numbers_of<T>(rotation.qkv),
                s.seq_len, (s.heads + 2 * s.kv_heads) * s.size, pairs});
}

}  // namespace

void swiglu_forward(ConstNumbers x, Numbers y, int64_t rows, int64_t width, cudaStream_t stream) {
  if (is_float32(x)) {
    for_each_in_rows(rows, width, stream,
                     SwigluForward<float>{numbers_of<float>(x), numbers_of<float>(y), width});
  } else {
    for_each_in_rows(rows, width, stream,
                     SwigluForward<__nv_bfloat16>{numbers_of<__nv_bfloat16>(x),
                                                  numbers_of<__nv_bfloat16>(y), width});
  }
}

void swiglu_backward(ConstNumbers x, ConstNumbers dy, Numbers dx, int64_t rows, int64_t width,
                     cudaStream_t stream) {
  if (is_float32(x)) {
    for_each_in_rows(rows, width, stream,
                     SwigluBackward<float>{numbers_of<float>(x), numbers_of<float>(dy),
                                           numbers_of<float>(dx), width});
  } else {
    for_each_in_rows(
        rows, width, stream,
        SwigluBackward<__nv_bfloat16>{numbers_of<__nv_bfloat16>(x), numbers_of<__nv_bfloat16>(dy),
                                      numbers_of<__nv_bfloat16>(dx), width});
  }
}

void rotate(const Rotation& rotation, cudaStream_t stream) {
  is_float32(rotation.qkv) ? rotate_as<float>(rotation, stream)
                           : rotate_as<__nv_bfloat16>(rotation, stream);
}

}  // namespace skein::gpu::kernels
