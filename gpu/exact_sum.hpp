#pragma once

#include <cstdint>

// Plain C++17 without Abseil or CUDA, as kernels use it, too.

namespace skein::gpu {

/// Sums that have the same bits in whatever order, and in whatever groups, they are added up: each
/// value is rounded to a multiple of `kExactStep` first, and all sums of these are float64 that
/// nothing is lost of (fixed point in the digits of a float64; pre-rounding as of Demmel and
/// Nguyen, ARITH 2013, with one step for all).
constexpr double kExactStep = 0x1p-43;  // 1.1e-13: a float32 of 1e-6 has no finer one.
/// Magnitudes may add up to so much, and those of a tied embedding's two uses to twice that: up to
/// 1024, which is 2^53 steps, a float64 loses none.
constexpr double kExactMax = 256;
/// Adding and subtracting it rounds a magnitude of up to `kExactMax` to a multiple of `kExactStep`,
/// of two to the even one: in [512, 1024) that is what neighbouring float64 lie apart.
constexpr double kExactRounder = 768;

/// Values, and the sums that they are added to.
struct ExactSum {
  float* values = nullptr;  // [count]
  double* sums = nullptr;   // [count]
  int64_t count = 0;
  /// Above this magnitude, and where it is no number, a value is NaN: `kExactMax` / number of
  /// values that one sum is of.
  double limit = 0;
};

}  // namespace skein::gpu
