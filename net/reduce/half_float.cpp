#include "net/reduce/half_float.hpp"

#include <algorithm>

#include "plans/base/check.hpp"

namespace skein::net {
namespace {

/// 2^exponent, for an exponent of a normal float.
float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

constexpr int kExponentMax = 126;  // Both 2^e and 2^-e are normal.

/// The exponent of the factor that brings the largest finite magnitude into [2^14, 2^15), if it
/// can.
int scale_exponent(std::span<const float> values) {
  uint32_t largest = 0;
  for (float value : values) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffff;
    const uint32_t finite = magnitude & (magnitude < 0x7f800000 ? ~0U : 0U);
    largest = finite > largest ? finite : largest;
  }
  const int exponent = static_cast<int>(largest >> 23) - 127;
  return largest == 0 ? 0 : std::min(14 - exponent, kExponentMax);
}

template <class Store>
void for_each_half(std::span<const uint16_t> words, std::span<float> values, Store store) {
  SKEIN_CHECK(words.size() == values.size() + kHalfHeadWords) << words.size() << " words";
  const uint16_t* halves = words.data() + kHalfHeadWords;
  if (words[0] == static_cast<uint16_t>(HalfFormat::kBf16)) {
    for (size_t i = 0; i < values.size(); ++i) store(values[i], from_bf16(halves[i]));
    return;
  }
  const float factor = power_of_two(-static_cast<int16_t>(words[1]));
  for (size_t i = 0; i < values.size(); ++i) store(values[i], from_fp16(halves[i]) * factor);
}

}  // namespace

void encode_half(HalfFormat format, std::span<const float> values, std::span<uint16_t> words) {
  SKEIN_CHECK(words.size() == values.size() + kHalfHeadWords) << words.size() << " words";
  uint16_t* halves = words.data() + kHalfHeadWords;
  words[0] = static_cast<uint16_t>(format);
  if (format == HalfFormat::kBf16) {
    words[1] = 0;
    for (size_t i = 0; i < values.size(); ++i) halves[i] = to_bf16(values[i]);
    return;
  }
  const int exponent = scale_exponent(values);
  const float factor = power_of_two(exponent);
  words[1] = static_cast<uint16_t>(static_cast<int16_t>(exponent));
  for (size_t i = 0; i < values.size(); ++i) halves[i] = to_fp16(values[i] * factor);
}

bool is_encoded_half(HalfFormat format, std::span<const uint16_t> words) {
  if (words.size() < kHalfHeadWords || words[0] != static_cast<uint16_t>(format)) return false;
  const int exponent = static_cast<int16_t>(words[1]);
  if (format == HalfFormat::kBf16) return exponent == 0;
  return exponent >= -kExponentMax && exponent <= kExponentMax;
}

void decode_half(std::span<const uint16_t> words, std::span<float> values) {
  for_each_half(words, values, [](float& value, float half) { value = half; });
}

void add_half(std::span<const uint16_t> words, std::span<float> values) {
  for_each_half(words, values, [](float& value, float half) { value += half; });
}

}  // namespace skein::net
