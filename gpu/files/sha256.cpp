#include "gpu/files/sha256.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::gpu {
namespace {

constexpr size_t kBlockBytes = 64;
constexpr size_t kLengthBytes = 8;  // At the end of the last block.
constexpr size_t kRounds = 64;

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, kRounds> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/// What a digest begins with: those of the square roots of the first 8 primes.
constexpr std::array<uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

uint32_t spread(uint32_t word, int first, int second, int third) {
  return std::rotr(word, first) ^ std::rotr(word, second) ^ std::rotr(word, third);
}

/// The words of a block and what follows from them, one for each round. Section 6.2.2, step 1.
std::array<uint32_t, kRounds> schedule_of(const std::byte* block) {
  std::array<uint32_t, kRounds> words{};
  for (size_t t = 0; t < 16; ++t) {
    for (size_t n = 0; n < 4; ++n) {
      words[t] = words[t] << 8 | std::to_integer<uint32_t>(block[4 * t + n]);
    }
  }
  for (size_t t = 16; t < kRounds; ++t) {
    const uint32_t early = words[t - 15], late = words[t - 2];
    words[t] = (std::rotr(late, 17) ^ std::rotr(late, 19) ^ (late >> 10)) + words[t - 7] +
               (std::rotr(early, 7) ^ std::rotr(early, 18) ^ (early >> 3)) + words[t - 16];
  }
  return words;
}

void add_block(const std::byte* block, std::array<uint32_t, 8>& digest) {
  const std::array<uint32_t, kRounds> words = schedule_of(block);
  auto [a, b, c, d, e, f, g, h] = digest;
  for (size_t t = 0; t < kRounds; ++t) {
    const uint32_t choice = (e & f) ^ (~e & g);
    const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t first = h + spread(e, 6, 11, 25) + choice + kRoundConstants[t] + words[t];
    const uint32_t second = spread(a, 2, 13, 22) + majority;
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<uint32_t, 8> sums = {a, b, c, d, e, f, g, h};
  for (size_t n = 0; n < digest.size(); ++n) digest[n] += sums[n];
}

}  // namespace

std::string sha256(std::span<const std::byte> data) {
  std::array<uint32_t, 8> digest = kStart;
  std::span<const std::byte> left = data;
  for (; left.size() >= kBlockBytes; left = left.subspan(kBlockBytes)) {
    add_block(left.data(), digest);
  }
  // The rest, a bit that is set, zeros, and the length in bits, highest byte first.
  std::array<std::byte, 2 * kBlockBytes> tail{};
  std::copy(left.begin(), left.end(), tail.begin());
  tail[left.size()] = std::byte{0x80};
  const bool is_one_block = left.size() + 1 + kLengthBytes <= kBlockBytes;
  const size_t end = is_one_block ? kBlockBytes : 2 * kBlockBytes;
  for (size_t n = 0; n < kLengthBytes; ++n) {
    tail[end - 1 - n] = static_cast<std::byte>(uint64_t{data.size()} * 8 >> (8 * n));
  }
  for (size_t begin = 0; begin < end; begin += kBlockBytes) add_block(&tail[begin], digest);
  std::string text;
  for (const uint32_t word : digest) absl::StrAppend(&text, absl::StrFormat("%08x", word));
  return text;
}

}  // namespace skein::gpu
