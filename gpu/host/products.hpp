#pragma once

#include <cstdint>

#include "gpu/ops.hpp"

namespace skein::gpu {

/// A matrix whose rows are `stride` floats apart.
struct ConstMatrix {
  const float* data = nullptr;
  int64_t stride = 0;
};
struct Matrix {
  float* data = nullptr;
  int64_t stride = 0;
};

/// One product on the calling thread: c = factor op(a) op(b), or c + ... if `shape.accumulate`.
/// oneDNN or OpenBLAS, whichever was measured to be faster for the shape.
void matmul_on_this_thread(const Ops::Matmul& shape, float factor, ConstMatrix a, ConstMatrix b,
                           Matrix c);

}  // namespace skein::gpu
