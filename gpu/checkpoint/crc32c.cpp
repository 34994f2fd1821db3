#include "gpu/checkpoint/crc32c.hpp"

#include <array>
#include <cstring>

namespace skein::gpu {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Reflected.

/// Eight tables: byte i of a word looks up the effect it has 7 - i bytes later.
constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t value = 0; value < 256; ++value) {
    uint32_t crc = value;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][value] = crc;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (uint32_t value = 0; value < 256; ++value) {
      const uint32_t before = tables[t - 1][value];
      tables[t][value] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr auto kTables = make_tables();

#if defined(__x86_64__)
/// Sums the words; the bytes behind them are left to the caller.
__attribute__((target("sse4.2"))) uint32_t sum_words(std::span<const std::byte> words,
                                                     uint32_t crc) {
  uint64_t sum = ~crc;
  for (; words.size() >= 8; words = words.subspan(8)) {
    uint64_t word = 0;
    std::memcpy(&word, words.data(), sizeof(word));
    sum = __builtin_ia32_crc32di(sum, word);
  }
  return ~static_cast<uint32_t>(sum);
}

bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
#else
uint32_t sum_words(std::span<const std::byte> words, uint32_t crc) {
  return crc32c_by_tables(words, crc);
}

bool has_instruction() { return false; }
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  if (!has_instruction()) return crc32c_by_tables(bytes, crc);
  const size_t whole = bytes.size() / 8 * 8;
  return crc32c_by_tables(bytes.subspan(whole), sum_words(bytes.first(whole), crc));
}

uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  }
  return ~crc;
}

}  // namespace skein::gpu
