#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "net/reduce/half_float.hpp"
#include "net/reduce/half_sum.hpp"
#include "tests/net/reduce/random_values.hpp"
#include "tests/net/reduce/threaded_exchange.hpp"

namespace skein::net {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Format {
  HalfFormat format;
  uint16_t (*to)(float);
  float (*from)(uint16_t);
  uint16_t infinity;
};
const Format kFormats[] = {{HalfFormat::kBf16, to_bf16, from_bf16, 0x7f80},
                           {HalfFormat::kFp16, to_fp16, from_fp16, 0x7c00}};

TEST(HalfFloat, EveryHalfReadsBack) {
  for (const Format& f : kFormats) {
    for (uint32_t half = 0; half <= 0xffff; ++half) {
      const float value = f.from(static_cast<uint16_t>(half));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(f.from(f.to(value))));
      } else {
        ASSERT_EQ(f.to(value), half);
      }
    }
  }
}

TEST(HalfFloat, Fp16HasTheValuesOfIeee754) {
  EXPECT_EQ(from_fp16(0x3c00), 1.0F);
  EXPECT_EQ(from_fp16(0xc000), -2.0F);
  EXPECT_EQ(from_fp16(0x7bff), 65504.0F);
  EXPECT_EQ(from_fp16(0x0400), std::ldexp(1.0F, -14));
  EXPECT_EQ(from_fp16(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(from_fp16(0x7c00), kInf);
  EXPECT_EQ(to_fp16(65519.0F), 0x7bff);
  EXPECT_EQ(to_fp16(65520.0F), 0x7c00);
  EXPECT_EQ(to_fp16(-1e9F), 0xfc00);
}

/// Between each half and its successor: the middle goes to the even one, all else to the nearest.
TEST(HalfFloat, RoundsToNearestEven) {
  for (const Format& f : kFormats) {
    for (uint16_t half = 0; half + 1 < f.infinity; ++half) {
      const float low = f.from(half);
      const float high = f.from(static_cast<uint16_t>(half + 1));
      const auto middle = static_cast<float>((double{low} + high) / 2);
      const uint16_t even = half % 2 == 0 ? half : static_cast<uint16_t>(half + 1);
      ASSERT_EQ(f.to(middle), even) << half;
      ASSERT_EQ(f.to(-middle), even | 0x8000) << half;
      ASSERT_EQ(f.to(std::nextafter(middle, 0.0F)), half);
      ASSERT_EQ(f.to(std::nextafter(middle, kInf)), half + 1);
    }
  }
}

TEST(HalfFloat, ScalesSoThatFp16NeitherOverflowsNorUnderflows) {
  for (float largest : {1e-44F, 1e-30F, 6e-8F, 1.0F, 65504.0F, 1e6F, 1e30F, 3.4e38F}) {
    const std::vector<float> values = {largest, -largest / 3, largest / 1000, 0};
    std::vector<uint16_t> words(values.size() + kHalfHeadWords);
    encode_half(HalfFormat::kFp16, values, words);
    ASSERT_TRUE(is_encoded_half(HalfFormat::kFp16, words));
    EXPECT_FALSE(is_encoded_half(HalfFormat::kBf16, words));
    std::vector<float> back(values.size());
    decode_half(words, back);
    for (size_t i = 0; i < values.size(); ++i) {
      const float spacing = std::numeric_limits<float>::denorm_min();
      EXPECT_NEAR(back[i], values[i], std::fabs(values[i]) / 2048 + spacing) << largest;
    }
  }
}

TEST(HalfFloat, KeepsInfinitiesAndNan) {
  const std::vector<float> values = {kInf, -kInf, std::nanf(""), 1e20F};
  for (const Format& f : kFormats) {
    std::vector<uint16_t> words(values.size() + kHalfHeadWords);
    encode_half(f.format, values, words);
    std::vector<float> back(values.size());
    decode_half(words, back);
    EXPECT_EQ(back[0], kInf);
    EXPECT_EQ(back[1], -kInf);
    EXPECT_TRUE(std::isnan(back[2]));
    EXPECT_NEAR(back[3], 1e20F, 1e18F);
  }
}

TEST(HalfSum, IsWithinTwoRoundingsOfTheSumAndTheSameEverywhere) {
  for (const Format& f : kFormats) {
    const double unit = f.format == HalfFormat::kBf16 ? 1.0 / 256 : 1.0 / 2048;
    for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
      for (size_t floats : {0, 1, 2, 9, 101}) {
        const auto inputs = random_values(ranks, floats);
        auto values = inputs;
        reduce_all(values, [&](Exchange& exchange, std::vector<float>& each) {
          return half_sum(exchange, f.format, each);
        });
        for (const auto& each : values) EXPECT_EQ(each, values[0]);
        for (size_t i = 0; i < floats; ++i) {
          double sum = 0, magnitudes = 0;
          for (const auto& each : inputs) {
            sum += each[i];
            magnitudes += std::fabs(each[i]);
          }
          EXPECT_NEAR(values[0][i], sum, unit * (magnitudes + std::fabs(sum)) * 1.01 + 1e-6);
        }
      }
    }
  }
}

TEST(HalfSum, SumsPastTheLargestFp16) {
  std::vector<std::vector<float>> values(3, std::vector<float>(5, 60000.0F));
  reduce_all(values, [&](Exchange& exchange, std::vector<float>& each) {
    return half_sum(exchange, HalfFormat::kFp16, each);
  });
  EXPECT_NEAR(values[0][4], 180000.0F, 180000.0F / 1024);
}

TEST(HalfSum, RefusesAPeerWithAnotherFormat) {
  const auto results = run_ranks(3, [](ThreadedExchange& exchange) {
    std::vector<float> values(7, 1.0F);
    return half_sum(exchange, exchange.rank() == 1 ? HalfFormat::kBf16 : HalfFormat::kFp16, values);
  });
  // Who notices first wakes the others.
  EXPECT_TRUE(std::any_of(results.begin(), results.end(), absl::IsInvalidArgument));
  for (const absl::Status& each : results) EXPECT_FALSE(each.ok());
}

}  // namespace
}  // namespace skein::net
