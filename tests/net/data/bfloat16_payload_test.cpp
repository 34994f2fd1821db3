#include "net/data/bfloat16_payload.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

namespace skein::net {
namespace {

float number(uint32_t upper) { return std::bit_cast<float>(upper << 16); }

TEST(Bfloat16Payload, NumbersComeBackBitByBit) {
  for (const size_t count : {1, 2, 1023, 1024, 1025, 70000}) {
    std::vector<float> numbers;
    // Every bfloat16 there is, infinities and what is no number too.
    for (size_t i = 0; i < count; ++i) numbers.push_back(number((i * 77) & 0xFFFF));
    const std::vector<uint16_t> halves = as_bfloat16(numbers);
    ASSERT_EQ(halves.size(), count);
    std::vector<float> memory(count, std::numeric_limits<float>::max());
    const std::span<std::byte> place = bfloat16_place(memory);
    ASSERT_EQ(place.size(), count * sizeof(uint16_t));
    std::memcpy(place.data(), halves.data(), place.size());
    read_bfloat16(memory);
    EXPECT_EQ(std::memcmp(memory.data(), numbers.data(), count * sizeof(float)), 0) << count;
  }
}

TEST(Bfloat16Payload, OneNumberOfMoreDigitsKeepsAllInFull) {
  std::vector<float> numbers(5000, 1.5F);
  EXPECT_EQ(as_bfloat16(numbers).size(), numbers.size());
  for (const size_t at : {size_t{0}, size_t{1024}, numbers.size() - 1000, numbers.size() - 1}) {
    std::vector<float> one = numbers;
    one[at] = 1.0F / 3;
    EXPECT_TRUE(as_bfloat16(one).empty()) << at;
  }
  EXPECT_TRUE(as_bfloat16({}).empty());
}

}  // namespace
}  // namespace skein::net
