#include <limits>

#include "gpu/cuda/kernels/element.cuh"
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

template <class T>
struct FillRows {
  const T* bias;
  T* y;
  int64_t columns;
  __device__ void operator()(int64_t i) const { y[i] = bias[i % columns]; }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Gelu {
  __device__ float operator()(float v, float) const {
    // 0.5 (1 + tanh(u)) is the logistic function of 2u.
    const float u = 2 * kSqrt2OverPi * (v + kGeluCubic * v * v * v);
    return v / (1.0F + expf(-u));
  }
};

struct GeluGradient {
  __device__ float operator()(float v, float dy) const {
    const float u = 2 * kSqrt2OverPi * (v + kGeluCubic * v * v * v);
    const float s = 1.0F / (1.0F + expf(-u));
    const float du = 2 * kSqrt2OverPi * (1.0F + 3 * kGeluCubic * v * v);
    return dy * (s + v * s * (1.0F - s) * du);
  }
};

/// y = function(a, b), kWidth neighbours at a time; without b (null) the function ignores it.
template <class T, int kWidth, class Function>
struct Combine {
  const T* a;
  const T* b;
  T* y;
  __device__ void operator()(int64_t i) const {
    float left[kWidth];
    float right[kWidth] = {};
    load_pack(a + i * kWidth, left);
    if (b != nullptr) load_pack(b + i * kWidth, right);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) left[k] = Function()(left[k], right[k]);
    store_pack(left, y + i * kWidth);
  }
};

template <class T, class Function>
void combine_as(ConstNumbers a, ConstNumbers b, Numbers y, int64_t count, cudaStream_t stream) {
  constexpr int kWidth = kWide<T>;
  const T* left = numbers_of<T>(a);
  const T* right = numbers_of<T>(b);
  T* to = numbers_of<T>(y);
  if (fits_packs(a, count, kWidth) && fits_packs(b, count, kWidth) &&
      fits_packs(y, count, kWidth)) {
    for_each(count / kWidth, stream, Combine<T, kWidth, Function>{left, right, to});
  } else {
    for_each(count, stream, Combine<T, 1, Function>{left, right, to});
  }
}

template <class Function>
void combine(ConstNumbers a, ConstNumbers b, Numbers y, int64_t count, cudaStream_t stream) {
  is_float32(y) ? combine_as<float, Function>(a, b, y, count, stream)
                : combine_as<__nv_bfloat16, Function>(a, b, y, count, stream);
}

template <class From, class To, int kWidth>
struct Convert {
  const From* from;
  To* to;
  __device__ void operator()(int64_t i) const {
    float values[kWidth];
    load_pack(from + i * kWidth, values);
    store_pack(values, to + i * kWidth);
  }
};

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

struct MoveToSum {
  ExactSum sum;
  __device__ void operator()(int64_t i) const {
    const double value = sum.values[i];
    const double rounded = (value + kExactRounder) - kExactRounder;
    sum.sums[i] += fabs(value) <= sum.limit ? rounded : kNoNumber;
    sum.values[i] = 0.0F;
  }
};

struct AddSum {
  const double* from;
  double* to;
  __device__ void operator()(int64_t i) const { to[i] += from[i]; }
};

struct RoundSum {
  const double* sums;
  float* values;
  __device__ void operator()(int64_t i) const { values[i] = static_cast<float>(sums[i]); }
};

template <class From, class To>
void convert_all(const From* from, To* to, int64_t count, cudaStream_t stream) {
  constexpr int kFour = 4;  // 16 bytes of float32.
  const auto addresses = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  if (count % kFour == 0 && addresses % 16 == 0) {
    for_each(count / kFour, stream, Convert<From, To, kFour>{from, to});
  } else {
    for_each(count, stream, Convert<From, To, 1>{from, to});
  }
}

}  // namespace

void fill_rows(ConstNumbers bias, Numbers y, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (is_float32(y)) {
    for_each(rows * columns, stream,
             FillRows<float>{numbers_of<float>(bias), numbers_of<float>(y), columns});
  } else {
    for_each(rows * columns, stream,
             FillRows<__nv_bfloat16>{numbers_of<__nv_bfloat16>(bias), numbers_of<__nv_bfloat16>(y),
                                     columns});
  }
}

void add(ConstNumbers a, ConstNumbers b, Numbers y, int64_t count, cudaStream_t stream) {
  combine<Sum>(a, b, y, count, stream);
}

void gelu_forward(ConstNumbers x, Numbers y, int64_t count, cudaStream_t stream) {
  combine<Gelu>(x, nullptr, y, count, stream);
}

void gelu_backward(ConstNumbers x, Numbers dy, int64_t count, cudaStream_t stream) {
  combine<GeluGradient>(x, dy, dy, count, stream);
}

void move_to_sums(const ExactSum& sum, cudaStream_t stream) {
  for_each(sum.count, stream, MoveToSum{sum});
}

void add_sums(const double* from, double* to, int64_t count, cudaStream_t stream) {
  for_each(count, stream, AddSum{from, to});
}

void round_sums(const double* sums, float* values, int64_t count, cudaStream_t stream) {
  for_each(count, stream, RoundSum{sums, values});
}

void convert(ConstNumbers from, Numbers to, int64_t count, cudaStream_t stream) {
  if (is_float32(from)) {
    convert_all(numbers_of<float>(from), numbers_of<__nv_bfloat16>(to), count, stream);
  } else {
    convert_all(numbers_of<__nv_bfloat16>(from), numbers_of<float>(to), count, stream);
  }
}

}  // namespace skein::gpu::kernels
