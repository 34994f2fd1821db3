#include "net/data/bfloat16_payload.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace skein::net {
namespace {

/// Numbers between two looks at whether all were bfloat16.
constexpr size_t kBlock = 1024;
/// Numbers at the end that are looked at first.
constexpr size_t kTail = 4;

/// Not 0 if one of the numbers is not bfloat16.
uint32_t lower_bits(std::span<const float> numbers) {
  uint32_t lower = 0;
  for (const float number : numbers) lower |= std::bit_cast<uint32_t>(number) & 0xFFFFU;
  return lower;
}

}  // namespace

std::vector<uint16_t> as_bfloat16(std::span<const float> numbers) {
  std::vector<uint16_t> halves;
  // A layer's state may begin with many weights in bfloat16, and ends with its checksum.
  if (lower_bits(numbers.last(std::min(numbers.size(), kTail))) != 0) return halves;
  for (size_t begin = 0; begin < numbers.size(); begin += kBlock) {
    const auto block = numbers.subspan(begin, std::min(kBlock, numbers.size() - begin));
    if (lower_bits(block) != 0) return {};
    if (halves.empty()) halves.resize(numbers.size());
    for (size_t i = 0; i < block.size(); ++i) {
      halves[begin + i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(block[i]) >> 16);
    }
  }
  return halves;
}

std::span<std::byte> bfloat16_place(std::span<float> memory) {
  return std::as_writable_bytes(memory).subspan(memory.size_bytes() / 2);
}

void read_bfloat16(std::span<float> memory) {
  const std::byte* halves = bfloat16_place(memory).data();
  // A block's numbers end before the halves of the next one begin.
  std::array<uint16_t, kBlock> block;
  for (size_t begin = 0; begin < memory.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, memory.size() - begin);
    std::memcpy(block.data(), halves + begin * sizeof(uint16_t), count * sizeof(uint16_t));
    for (size_t i = 0; i < count; ++i) {
      memory[begin + i] = std::bit_cast<float>(uint32_t{block[i]} << 16);
    }
  }
}

}  // namespace skein::net
