#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gpu/cuda/load_cuda.hpp"
#include "gpu/device.hpp"
#include "gpu/ops.hpp"
#include "plans/base/rng.hpp"

namespace skein::gpu {

/// Relative to the largest value of a tensor. What is given to an op in bfloat16 is representable,
/// so the host computes with the same.
inline constexpr double kExact = 2e-6;      // Sums of up to a few hundred terms in another order.
inline constexpr double kStored = 4e-3;     // One result of 8 bits: half of 2^-7.
inline constexpr double kRounded = 1.5e-2;  // Results of 8 bits that others are computed from.

/// A tensor on a device, for the length of one test.
struct Tensor {
  float* data = nullptr;
  size_t count = 0;
};
/// One in the type that the device keeps activations in.
struct Activations {
  Numbers data;
  size_t count = 0;
};

/// To the nearest bfloat16, of two to the one whose last bit is zero. Not for NaN.
inline float rounded_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t last = bits >> 16 & 1;
  return std::bit_cast<float>((bits + 0x7FFF + last) & 0xFFFF0000U);
}

/// One device with tensors that are made from numbers of the host.
class Bench {
 public:
  /// `rounds`: values of activations are made representable in bfloat16.
  Bench(std::unique_ptr<Device> device, bool rounds)
      : device_(std::move(device)), rounds_(rounds) {}

  Device& device() { return *device_; }

  Tensor make(const std::vector<float>& values) {
    buffers_.push_back(device_->allocate(static_cast<int64_t>(values.size() * 4)).value());
    EXPECT_TRUE(device_->upload(values, buffers_.back().floats()).ok());
    return {buffers_.back().floats(), values.size()};
  }
  /// What must be overwritten shows if it is not.
  Tensor poisoned(int64_t count) {
    return make(
        std::vector<float>(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN()));
  }
  std::vector<float> read(const Tensor& tensor) {
    std::vector<float> values(tensor.count);
    EXPECT_TRUE(device_->download(tensor.data, values).ok());
    return values;
  }
  Activations activations(std::vector<float> values) {
    const NumberType type = device_->info().activations;
    if (rounds_) {
      for (float& value : values) value = std::isnan(value) ? value : rounded_to_bfloat16(value);
    }
    const auto count = static_cast<int64_t>(values.size());
    buffers_.push_back(device_->allocate(count * bytes_of(type)).value());
    const Activations made{buffers_.back().numbers(type), values.size()};
    EXPECT_TRUE(run([&](Ops& ops) { ops.copy_in(values, made.data); }).ok());
    return made;
  }
  Activations poisoned_activations(int64_t count) {
    return activations(
        std::vector<float>(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN()));
  }
  std::vector<float> read(const Activations& tensor) {
    std::vector<float> values(tensor.count);
    EXPECT_TRUE(run([&](Ops& ops) { ops.copy_out(tensor.data, values); }).ok());
    return values;
  }
  absl::Status run(std::function<void(Ops&)> body) {
    return device_->run({WorkKind::kOther, [&](Ops& ops) {
                           body(ops);
                           return absl::OkStatus();
                         }});
  }

 private:
  std::unique_ptr<Device> device_;
  bool rounds_;
  std::vector<Buffer> buffers_;
};

inline std::vector<float> random_values(int64_t count, uint64_t stream, double scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(scale * plans::random_normal(11, stream, i));
  }
  return values;
}

inline std::vector<int32_t> random_tokens(int64_t count, uint64_t below, uint64_t stream) {
  plans::Rng rng(3, stream);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng.below(below));
  return tokens;
}

inline void expect_near(const std::vector<float>& got, const std::vector<float>& wanted,
                        double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  double largest = 1e-3;
  for (float value : wanted) largest = std::max(largest, std::abs(double{value}));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << what << " [" << i << "] is " << got[i];
    ASSERT_NEAR(got[i], wanted[i], tolerance * largest) << what << " [" << i << "]";
  }
}

/// An op as a test sees it: makes its tensors on a bench, runs, and gives back what it wrote.
using Outputs = std::vector<std::vector<float>>;
using Case = std::function<Outputs(Bench&)>;

class CudaOps : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    CudaOptions options;
    options.precision = GetParam();
    absl::StatusOr<std::unique_ptr<Device>> device = load_cuda_device(options);
    if (!device.ok()) GTEST_SKIP() << device.status();
    cuda_ = std::make_unique<Bench>(*std::move(device), rounds());
  }

  bool rounds() const { return std::string(GetParam()) == "bfloat16"; }
  bool is_emulated() { return cuda_->device().info().name.find("emulated") != std::string::npos; }
  /// A size that only a real GPU does in reasonable time.
  int64_t large(int64_t here, int64_t emulated) { return is_emulated() ? emulated : here; }
  /// Rows and columns of norms: odd ones, and rows in the registers of one warp, of several, and of
  /// none.
  std::vector<std::array<int64_t, 2>> norm_shapes() {
    return {
        {1, 1},    {3, 7},    {5, 32},   {65, 100}, {130, 33}, {large(1000, 9), large(1600, 320)},
        {37, 768}, {3, 1000}, {9, 2056}, {9, 4104}};
  }

  /// `tolerances`: one for each output, the last for those that are left.
  void compare(const std::string& what, const std::vector<double>& tolerances,
               const Case& run_case) {
    Bench host(make_host_device(1), rounds());
    const Outputs wanted = run_case(host);
    const Outputs got = run_case(*cuda_);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      expect_near(got[i], wanted[i], tolerances[std::min(i, tolerances.size() - 1)],
                  what + " output " + std::to_string(i));
    }
    if (is_emulated()) return;  // It has no order of threads that could change.
    EXPECT_EQ(run_case(*cuda_), got) << what << " differs from run to run";
  }
  /// The tolerance of products.
  double tolerance() const { return std::string(GetParam()) == "float32" ? kExact : kRounded; }
  /// Everything else that is computed from activations.
  double tolerance_of(double float32, double bfloat16) const {
    return rounds() ? bfloat16 : float32;
  }

  std::unique_ptr<Bench> cuda_;
};

}  // namespace skein::gpu
