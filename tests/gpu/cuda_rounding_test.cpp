// How the CUDA back end rounds to bfloat16: weights for products, and whatever is copied to another
// type. See cuda_ops_test.cpp for the plugin.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/gpu/cuda_ops_fixture.hpp"

namespace skein::gpu {
namespace {

class CudaRounding : public CudaOps {};

/// Where a device keeps weights rounded, too, in every way that its kernels take them.
TEST_P(CudaRounding, WritesRoundedWeightsBesideTheMasters) {
  for (int64_t count : {int64_t{1}, int64_t{5}, int64_t{4096}, int64_t{16385}}) {
    for (int64_t begin : {0, 1, 4}) {
      const Tensor weight = cuda_->make(random_values(count + begin, 1));
      const Tensor gradient = cuda_->make(random_values(count + begin, 2));
      const Tensor first = cuda_->make(random_values(count + begin, 3));
      const Tensor second = cuda_->make(std::vector<float>(weight.count, 0.5F));
      const Activations adamw = cuda_->poisoned_activations(count + begin);
      const Activations sgd = cuda_->poisoned_activations(count + begin);
      auto expect_rounded = [&](const Activations& got, const char* what) {
        std::vector<float> wanted = cuda_->read(weight);
        for (float& value : wanted) value = rounded_to_bfloat16(value);
        const std::vector<float> all = cuda_->read(got);
        EXPECT_TRUE(std::equal(all.begin() + begin, all.end(), wanted.begin() + begin))
            << what << " of " << count << " behind " << begin;
        for (int64_t i = 0; i < begin; ++i) EXPECT_TRUE(std::isnan(all[static_cast<size_t>(i)]));
      };
      const Ops::AdamwTensor tensor{weight.data + begin,
                                    gradient.data + begin,
                                    first.data + begin,
                                    second.data + begin,
                                    count,
                                    true,
                                    adamw.data + begin};
      const Ops::Adamw options{0.1F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.3F, 0.2F, 0.5F};
      ASSERT_TRUE(cuda_->run([&](Ops& ops) { ops.adamw_all(options, {&tensor, 1}); }).ok());
      expect_rounded(adamw, "AdamW");
      ASSERT_TRUE(cuda_
                      ->run([&](Ops& ops) {
                        ops.sgd({0.1F, 0.9F, 0.01F, 0.5F},
                                {weight.data + begin, gradient.data + begin, first.data + begin,
                                 count, sgd.data + begin});
                      })
                      .ok());
      expect_rounded(sgd, "SGD");
    }
  }
}

/// Also ties, numbers that round up to the next power of two, and those that are not finite.
TEST_P(CudaRounding, IsToTheNearestBfloat16) {
  std::vector<float> values = random_values(1001, 1);
  for (uint32_t bits : {0x3F808000U, 0x3F818000U, 0x3F808001U, 0x3F807FFFU, 0x3FFFFFFFU,
                        0x80000000U, 0x00008000U, 0x7F7FFFFFU, 0xFF800000U}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  for (size_t dropped : {0U, 1U, 2U}) {  // Multiples of four and others.
    std::vector<float> wanted(values.begin() + static_cast<int64_t>(dropped), values.end());
    const Tensor from = cuda_->make(wanted);
    const Activations to = cuda_->poisoned_activations(static_cast<int64_t>(wanted.size()));
    for (float& value : wanted) value = rounded_to_bfloat16(value);
    ASSERT_TRUE(cuda_
                    ->run([&](Ops& ops) {
                      ops.copy(from.data, to.data, static_cast<int64_t>(wanted.size()));
                    })
                    .ok());
    EXPECT_EQ(cuda_->read(to), wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaRounding, testing::Values("bfloat16"));

}  // namespace
}  // namespace skein::gpu
