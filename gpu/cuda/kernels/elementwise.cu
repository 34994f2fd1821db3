#include <cuda_bf16.h>

#include "gpu/cuda/kernels/elementwise.hpp"
#include "gpu/cuda/launch_shape.hpp"

namespace skein::gpu::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;
constexpr float kSqrt2OverPi = 0.7978845608028654F;
constexpr float kGeluCubic = 0.044715F;

/// Calls element(i) for all i < count, neighbouring threads on neighbouring elements.
/// grid = striding_blocks(count, kThreads * kPerThread).
template <class Element>
__global__ void for_each_kernel(int64_t count, Element element) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    element(i);
  }
}

template <class Element>
void for_each(int64_t count, cudaStream_t stream, Element element) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(striding_blocks(count, kThreads * kPerThread));
  for_each_kernel<<<blocks, kThreads, 0, stream>>>(count, element);
}

struct FillRows {
  const float* bias;
  float* y;
  int64_t columns;
  __device__ void operator()(int64_t i) const { y[i] = bias[i % columns]; }
};

struct AddBias {
  const float* bias;
  float* y;
  int64_t columns;
  __device__ void operator()(int64_t i) const { y[i] += bias[i % columns]; }
};

struct Add {
  const float* a;
  const float* b;
  float* y;
  __device__ void operator()(int64_t i) const { y[i] = a[i] + b[i]; }
};

struct GeluForward {
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const {
    const float v = x[i];
    // 0.5 (1 + tanh(u)) is the logistic function of 2u.
    const float u = 2 * kSqrt2OverPi * (v + kGeluCubic * v * v * v);
    y[i] = v / (1.0F + expf(-u));
  }
};

struct GeluBackward {
  const float* x;
  float* dy;
  __device__ void operator()(int64_t i) const {
    const float v = x[i];
    const float u = 2 * kSqrt2OverPi * (v + kGeluCubic * v * v * v);
    const float s = 1.0F / (1.0F + expf(-u));
    const float du = 2 * kSqrt2OverPi * (1.0F + 3 * kGeluCubic * v * v);
    dy[i] *= s + v * s * (1.0F - s) * du;
  }
};

struct ToBfloat16 {
  const float* from;
  uint16_t* to;
  __device__ void operator()(int64_t i) const {
    to[i] = __bfloat16_as_ushort(__float2bfloat16_rn(from[i]));
  }
};

struct FromBfloat16 {
  const uint16_t* from;
  float* to;
  __device__ void operator()(int64_t i) const {
    to[i] = __bfloat162float(__ushort_as_bfloat16(from[i]));
  }
};

/// Four at a time; both pointers aligned to 16 bytes.
struct ToBfloat16By4 {
  const float4* from;
  uint2* to;
  __device__ void operator()(int64_t i) const {
    const float4 v = from[i];
    const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y);
    const __nv_bfloat162 high = __floats2bfloat162_rn(v.z, v.w);
    to[i] = make_uint2(*reinterpret_cast<const unsigned*>(&low),
                       *reinterpret_cast<const unsigned*>(&high));
  }
};

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void fill_rows(const float* bias, float* y, int64_t rows, int64_t columns, cudaStream_t stream) {
  for_each(rows * columns, stream, FillRows{bias, y, columns});
}

void add_bias(const float* bias, float* y, int64_t rows, int64_t columns, cudaStream_t stream) {
  for_each(rows * columns, stream, AddBias{bias, y, columns});
}

void add(const float* a, const float* b, float* y, int64_t count, cudaStream_t stream) {
  for_each(count, stream, Add{a, b, y});
}

void gelu_forward(const float* x, float* y, int64_t count, cudaStream_t stream) {
  for_each(count, stream, GeluForward{x, y});
}

void gelu_backward(const float* x, float* dy, int64_t count, cudaStream_t stream) {
  for_each(count, stream, GeluBackward{x, dy});
}

void to_bfloat16(const float* from, uint16_t* to, int64_t count, cudaStream_t stream) {
  if (count % 4 == 0 && is_aligned(from) && is_aligned(to)) {
    for_each(count / 4, stream,
             ToBfloat16By4{reinterpret_cast<const float4*>(from), reinterpret_cast<uint2*>(to)});
  } else {
    for_each(count, stream, ToBfloat16{from, to});
  }
}

void from_bfloat16(const uint16_t* from, float* to, int64_t count, cudaStream_t stream) {
  for_each(count, stream, FromBfloat16{from, to});
}

}  // namespace skein::gpu::kernels
