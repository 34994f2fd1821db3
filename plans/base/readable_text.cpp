#include "plans/base/readable_text.hpp"

namespace skein::plans {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// A character of several bytes by which a terminal or a reader may take a line for another one:
/// the upper control characters, breaks of lines, and what turns the direction of text.
bool is_deceptive(std::string_view character) {
  const auto at = [character](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 2) return at(0) == 0xc2 && at(1) < 0xa0;  // U+0080..9F
  if (character.size() != 3 || at(0) != 0xe2) return false;
  if (at(1) == 0x80) return at(2) >= 0xa8 && at(2) <= 0xae;  // U+2028..2E
  return at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9;    // U+2066..69
}
bool is_of_lines(char c) { return c == '\n' || c == '\t' || c == '\r'; }
bool is_of_pages(char c) { return c == '\f' || c == '\v'; }

/// A line in colours has one escape in some ten characters. Every second byte of tokens is an upper
/// one, and small for the frequent ones.
constexpr size_t kCharactersOfControl = 8;
constexpr size_t kCharacterBytesMax = 4;

}  // namespace

size_t character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto at = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = at(1);
  const bool is_wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return is_wrong ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = character_bytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool looks_like_text(std::string_view bytes, bool is_cut) {
  size_t characters = 0, controls = 0;
  while (!bytes.empty()) {
    const size_t length = character_bytes(bytes);
    if (length == 0) {
      if (!is_cut || bytes.size() >= kCharacterBytesMax) return false;
      break;
    }
    const char first = bytes.front();
    if (first == '\0') return false;
    ++characters;
    if (is_control(first) && !is_of_lines(first) && !is_of_pages(first)) ++controls;
    bytes.remove_prefix(length);
  }
  return controls * kCharactersOfControl <= characters;
}

bool is_readable(std::string_view character, bool may_have_lines) {
  if (character.empty()) return false;
  const char first = character.front();
  if (is_control(first)) return may_have_lines && is_of_lines(first);
  return !is_deceptive(character);
}

}  // namespace skein::plans
