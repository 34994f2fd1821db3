#include "gpu/cuda/kernels/element.cuh"
#include "gpu/cuda/kernels/rows.hpp"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 256;

/// Calls element(row, column) for every kWidth-th column of all rows. A thread keeps its column, so
/// that what follows from it is computed once. grid = (ceil(columns / (kThreads kWidth)), as many
/// as fill the device). Bound: DRAM.
template <int kWidth, class Element>
__global__ void for_each_in_rows_kernel(int64_t rows, int64_t columns, Element element) {
  const int64_t column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (column >= columns) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) element(row, column);
}

template <int kWidth, class Element>
void for_each_in_rows(int64_t rows, int64_t columns, cudaStream_t stream, Element element) {
  if (rows == 0 || columns == 0) return;
  const int64_t across = ceil_divide(columns, kThreads * kWidth);
  const int64_t down = striding_blocks(rows, ceil_divide(across * rows, kStridingBlocksMax));
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  for_each_in_rows_kernel<kWidth, Element><<<grid, kThreads, 0, stream>>>(rows, columns, element);
}

__device__ float logistic(float x) { return 1.0F / (1.0F + expf(-x)); }

template <class T, int kWidth>
struct SwigluForward {
  const T* x;
  T* y;
  int64_t width;
  __device__ void operator()(int64_t row, int64_t column) const {
    const T* at = x + row * 2 * width + column;
    float gate[kWidth];
    float value[kWidth];
    load_pack(at, gate);
    load_pack(at + width, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value[i] *= gate[i] * logistic(gate[i]);
    store_pack(value, y + row * width + column);
  }
};

template <class T, int kWidth>
struct SwigluBackward {
  const T* x;
  const T* dy;
  T* dx;
  int64_t width;
  __device__ void operator()(int64_t row, int64_t column) const {
    const int64_t at = row * 2 * width + column;
    float gate[kWidth];
    float value[kWidth];
    float gradient[kWidth];
    load_pack(x + at, gate);
    load_pack(x + at + width, value);
    load_pack(dy + row * width + column, gradient);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float g = gate[i];
      const float s = logistic(g);
      gate[i] = gradient[i] * value[i] * (s + g * s * (1.0F - s));
      value[i] = gradient[i] * g * s;
    }
    store_pack(gate, dx + at);
    store_pack(value, dx + at + width);
  }
};

/// Column p is pair p % (D / 2) of head p / (D / 2), the heads of q and then those of k.
template <class T, int kWidth>
struct Rotate {
  const float* turns;
  float direction;
  T* qkv;
  int64_t seq_len, stride, pairs;
  __device__ void operator()(int64_t row, int64_t column) const {
    const int64_t pair = column % pairs;
    const float* turn = turns + row % seq_len * 2 * pairs + pair;
    T* at = qkv + row * stride + column / pairs * 2 * pairs + pair;
    float cosine[kWidth];
    float sine[kWidth];
    float first[kWidth];
    float second[kWidth];
    load_pack(turn, cosine);
    load_pack(turn + pairs, sine);
    load_pack(at, first);
    load_pack(at + pairs, second);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float a = first[i];
      const float b = second[i];
      first[i] = a * cosine[i] - direction * b * sine[i];
      second[i] = b * cosine[i] + direction * a * sine[i];
    }
    store_pack(first, at);
    store_pack(second, at + pairs);
  }
};

template <class T, int kWidth>
void launch(const Rotation& rotation, cudaStream_t stream) {
  const AttentionShape& s = rotation.shape;
  const int64_t pairs = s.size / 2;
  for_each_in_rows<kWidth>(s.batch * s.seq_len, (s.heads + s.kv_heads) * pairs, stream,
                           Rotate<T, kWidth>{rotation.turns, rotation.is_opposite ? -1.0F : 1.0F,
                                             numbers_of<T>(rotation.qkv), s.seq_len,
                                             (s.heads + 2 * s.kv_heads) * s.size, pairs});
}

template <class T>
void rotate_as(const Rotation& rotation, cudaStream_t stream) {
  if (fits_packs(rotation.qkv, rotation.shape.size / 2, kWide<T>) && is_aligned(rotation.turns)) {
    launch<T, kWide<T>>(rotation, stream);
  } else {
    launch<T, 1>(rotation, stream);
  }
}

template <class T>
void swiglu_forward_as(ConstNumbers x, Numbers y, int64_t rows, int64_t width,
                       cudaStream_t stream) {
  const T* from = numbers_of<T>(x);
  T* to = numbers_of<T>(y);
  constexpr int kWidth = kWide<T>;
  if (fits_packs(x, width, kWidth) && fits_packs(y, width, kWidth)) {
    for_each_in_rows<kWidth>(rows, width, stream, SwigluForward<T, kWidth>{from, to, width});
  } else {
    for_each_in_rows<1>(rows, width, stream, SwigluForward<T, 1>{from, to, width});
  }
}

template <class T>
void swiglu_backward_as(ConstNumbers x, ConstNumbers dy, Numbers dx, int64_t rows, int64_t width,
                        cudaStream_t stream) {
  const T* from = numbers_of<T>(x);
  const T* gradient = numbers_of<T>(dy);
  T* to = numbers_of<T>(dx);
  constexpr int kWidth = kWide<T>;
  if (fits_packs(x, width, kWidth) && fits_packs(dy, width, kWidth) &&
      fits_packs(dx, width, kWidth)) {
    for_each_in_rows<kWidth>(rows, width, stream,
                             SwigluBackward<T, kWidth>{from, gradient, to, width});
  } else {
    for_each_in_rows<1>(rows, width, stream, SwigluBackward<T, 1>{from, gradient, to, width});
  }
}

}  // namespace

void swiglu_forward(ConstNumbers x, Numbers y, int64_t rows, int64_t width, cudaStream_t stream) {
  is_float32(x) ? swiglu_forward_as<float>(x, y, rows, width, stream)
                : swiglu_forward_as<__nv_bfloat16>(x, y, rows, width, stream);
}

void swiglu_backward(ConstNumbers x, ConstNumbers dy, Numbers dx, int64_t rows, int64_t width,
                     cudaStream_t stream) {
  is_float32(x) ? swiglu_backward_as<float>(x, dy, dx, rows, width, stream)
                : swiglu_backward_as<__nv_bfloat16>(x, dy, dx, rows, width, stream);
}

void rotate(const Rotation& rotation, cudaStream_t stream) {
  is_float32(rotation.qkv) ? rotate_as<float>(rotation, stream)
                           : rotate_as<__nv_bfloat16>(rotation, stream);
}

}  // namespace skein::gpu::kernels
