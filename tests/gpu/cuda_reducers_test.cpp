// The ops of sparse and adaptive sums against net/reduce, which is what sums gradients on the host:
// of the host's back end, and of the CUDA one as in cuda_ops_test.cpp.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/cuda/load_cuda.hpp"
#include "gpu/device.hpp"
#include "gpu/ops.hpp"
#include "net/reduce/adasum.hpp"
#include "net/reduce/top_k.hpp"
#include "plans/base/rng.hpp"

namespace skein::gpu {
namespace {

using Draw = std::function<float(uint64_t)>;

std::vector<std::pair<std::string, Draw>> distributions() {
  return {
      {"normal", [](uint64_t i) { return static_cast<float>(plans::random_normal(1, 0, i)); }},
      {"zero", [](uint64_t) { return 0.0F; }},
      {"equal", [](uint64_t i) { return i % 2 == 0 ? 0.5F : -0.5F; }},
      {"few levels", [](uint64_t i) { return static_cast<float>(i * 7 % 3); }},
      {"mostly zero", [](uint64_t i) { return i % 97 == 5 ? static_cast<float>(i) : 0.0F; }},
      {"wide",
       [](uint64_t i) { return static_cast<float>(std::exp(10 * plans::random_normal(2, 0, i))); }},
      {"subnormal", [](uint64_t i) { return 1e-45F * static_cast<float>(i % 50); }},
      {"largest", [](uint64_t i) { return i % 3 == 0 ? 3.4e38F : -1.0F; }}};
}

std::vector<float> draw(const Draw& each, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = each(i);
  return values;
}

class Reducers : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "host") {
      device_ = make_host_device(1);
      return;
    }
    absl::StatusOr<std::unique_ptr<Device>> device = load_cuda_device({});
    if (!device.ok()) GTEST_SKIP() << device.status();
    device_ = *std::move(device);
  }

  Buffer make(const std::vector<float>& values) {
    Buffer buffer = device_->allocate(static_cast<int64_t>(values.size() * 4)).value();
    EXPECT_TRUE(device_->upload(values, buffer.floats()).ok());
    return buffer;
  }
  std::vector<float> read(const Buffer& buffer, size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(device_->download(buffer.floats(), values).ok());
    return values;
  }
  absl::Status run(std::function<void(Ops&)> body) {
    return device_->run({WorkKind::kOther, [&](Ops& ops) {
                           body(ops);
                           return absl::OkStatus();
                         }});
  }
  bool is_emulated() { return device_->info().name.find("emulated") != std::string::npos; }

  std::unique_ptr<Device> device_;
};

TEST_P(Reducers, SelectWhatTheHostSelects) {
  // Around a tile of 256 values and a chunk of 16384, and more chunks than threads in a block.
  std::vector<int64_t> counts = {1, 2, 255, 256, 257, 1027, 16385, 40001};
  if (std::string(GetParam()) == "cuda" && !is_emulated()) counts.push_back(5'000'003);
  for (const auto& [name, each] : distributions()) {
    for (int64_t n : counts) {
      // Emulated, every launch takes its time: odd sizes with two, odd values at one size.
      const bool is_basic = name == "normal" || (name == "equal" && n <= 1027);
      if (is_emulated() && n != 1027 && !is_basic) continue;
      const std::vector<float> values = draw(each, n);
      const Buffer x = make(values);
      for (int64_t k : {int64_t{1}, n / 3, n}) {
        if (k < 1) continue;
        std::vector<uint32_t> wanted;
        net::select_top_k(values, static_cast<size_t>(k), wanted);
        const Buffer indices = make(std::vector<float>(static_cast<size_t>(k), NAN));
        ASSERT_TRUE(run([&](Ops& ops) {
                      ops.select_top_k(x.floats(), n, k, static_cast<uint32_t*>(indices.data()));
                    }).ok());
        std::vector<uint32_t> got;
        for (float raw : read(indices, static_cast<size_t>(k))) {
          got.push_back(std::bit_cast<uint32_t>(raw));
        }
        ASSERT_EQ(got, wanted) << name << ", " << k << " of " << n;
      }
    }
  }
}

TEST_P(Reducers, CombineByAdasumAsTheHostDoes) {
  for (int64_t n : {int64_t{1}, int64_t{7}, int64_t{255}, int64_t{16385}, int64_t{50'001}}) {
    std::vector<float> a(static_cast<size_t>(n)), b(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<float>(plans::random_normal(3, 0, i));
      b[i] = static_cast<float>(plans::random_normal(4, 0, i) + 0.5 * a[i]);
    }
    const Buffer there_a = make(a), there_b = make(b);
    Ops::Dots got{100, 200, 300};  // Is added to.
    ASSERT_TRUE(
        run([&](Ops& ops) { ops.add_dots(there_a.floats(), there_b.floats(), n, &got); }).ok());
    net::AdasumDots wanted;
    net::add_dots(a, b, wanted);
    const double size = wanted.aa + wanted.bb;  // Float64 sums are made in another order.
    EXPECT_NEAR(got.ab - 100, wanted.ab, 1e-12 * size) << n;
    EXPECT_NEAR(got.aa - 200, wanted.aa, 1e-12 * size) << n;
    EXPECT_NEAR(got.bb - 300, wanted.bb, 1e-12 * size) << n;
    const net::AdasumFactors factors = net::adasum_factors(wanted);
    ASSERT_TRUE(run([&](Ops& ops) {
                  ops.combine(factors.a, there_a.floats(), factors.b, there_b.floats(), n);
                }).ok());
    net::combine(factors, a, b);
    const std::vector<float> combined = read(there_a, a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      // A product and a sum may be one instruction, which rounds once.
      ASSERT_NEAR(combined[i], a[i], 1e-6 * std::abs(double{a[i]}) + 1e-12) << i << " of " << n;
    }
    EXPECT_EQ(read(there_b, b.size()), b) << "is only read";
  }
}

TEST_P(Reducers, RefuseMoreThanThereAre) {
  if (std::string(GetParam()) == "host") return;  // There it is a bug, which ends the process.
  const Buffer x = make({1, 2, 3});
  const absl::Status status =
      run([&](Ops& ops) { ops.select_top_k(x.floats(), 3, 4, static_cast<uint32_t*>(x.data())); });
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

INSTANTIATE_TEST_SUITE_P(Device, Reducers, testing::Values("host", "cuda"));

}  // namespace
}  // namespace skein::gpu
