#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace skein::net {

/// Formats of 16 bits. bf16: sign, 8 bits of exponent, 7 of fraction. fp16 (IEEE binary16): sign,
/// 5, 10.
enum class HalfFormat : uint16_t { kBf16 = 1, kFp16 = 2 };

/// The nearest bf16, on a tie the even one. What is past the largest finite one, which is 0.2%
/// below the largest float, becomes infinite. NaN stays NaN.
inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}
inline float from_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

/// The nearest fp16, on a tie the even one, subnormal ones too. 65520 and more become infinite, as
/// IEEE 754 has it: `encode_half` scales so that this does not happen. NaN stays NaN.
inline uint16_t to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  // Adding 0.5 leaves the fraction of a subnormal in the lowest bits, rounded by the addition.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - 0x3f000000;
  const uint32_t normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  uint32_t half = magnitude < 0x38800000 ? subnormal : normal;  // Below 2^-14.
  half = magnitude >= 0x47800000 ? special : half;              // 2^16 and above.
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | half);
}
inline float from_fp16(uint16_t half) {
  const uint32_t magnitude = (half & 0x7fffU) << 13;
  const uint32_t exponent = magnitude & (0x7c00U << 13);
  const uint32_t normal = magnitude + (112U << 23);
  const uint32_t special = normal + (112U << 23);
  const float subnormal =
      std::bit_cast<float>(normal + (1U << 23)) - std::bit_cast<float>(113U << 23);
  uint32_t bits = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal;
  bits = exponent == (0x7c00U << 13) ? special : bits;
  return std::bit_cast<float>(bits | (half & 0x8000U) << 16);
}

/// Writes `values` as halves behind a head of two words: the format, and the exponent e of a factor
/// 2^e that the values were multiplied by. For fp16, e brings the largest finite value near 2^15,
/// so no finite value overflows, and what is lost is 2^-40 of the largest or less; for bf16 it is
/// 0. Infinities and NaN stay what they are.
///
/// `words`   [2 + values.size()]
void encode_half(HalfFormat format, std::span<const float> values, std::span<uint16_t> words);

/// Whether the head is one of `format`; all other words may be anything.
bool is_encoded_half(HalfFormat format, std::span<const uint16_t> words);
/// values := or += what `encode_half` was given, rounded. The head has been checked.
void decode_half(std::span<const uint16_t> words, std::span<float> values);
void add_half(std::span<const uint16_t> words, std::span<float> values);

inline constexpr size_t kHalfHeadWords = 2;

}  // namespace skein::net
