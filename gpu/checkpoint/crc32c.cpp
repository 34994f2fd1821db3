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

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
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
