#include "gpu/text/byte_alphabet.hpp"

#include <array>
#include <cstdint>

#include "plans/base/readable_text.hpp"

namespace skein::gpu {
namespace {

constexpr uint32_t kFirstOther = 0x100;
constexpr size_t kByteCount = 256;

bool is_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/// The character of each byte, and the byte of each character below U+0144, -1 for none.
struct Alphabet {
  std::array<uint32_t, kByteCount> character{};
  std::array<int, kFirstOther + kByteCount> byte{};
};

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  uint32_t next = kFirstOther;
  for (uint32_t byte = 0; byte < kByteCount; ++byte) {
    alphabet.character[byte] = is_itself(byte) ? byte : next++;
    alphabet.byte[alphabet.character[byte]] = static_cast<int>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet made = make_alphabet();
  return made;
}

}  // namespace

std::optional<std::string> bytes_of_written(std::string_view written) {
  std::string bytes;
  while (!written.empty()) {
    const size_t length = plans::character_bytes(written);
    if (length == 0 || length > 2) return std::nullopt;
    auto character = static_cast<uint32_t>(static_cast<unsigned char>(written[0]));
    if (length == 2) {
      const auto second = static_cast<uint32_t>(static_cast<unsigned char>(written[1]));
      character = ((character & 0x1f) << 6) | (second & 0x3f);
    }
    if (character >= alphabet().byte.size() || alphabet().byte[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte[character]));
    written.remove_prefix(length);
  }
  return bytes;
}

std::string written_of_bytes(std::string_view bytes) {
  std::string written;
  for (const char each : bytes) {
    const uint32_t character = alphabet().character[static_cast<unsigned char>(each)];
    if (character < 0x80) {
      written.push_back(static_cast<char>(character));
    } else {
      written.push_back(static_cast<char>(0xc0 | (character >> 6)));
      written.push_back(static_cast<char>(0x80 | (character & 0x3f)));
    }
  }
  return written;
}

}  // namespace skein::gpu
