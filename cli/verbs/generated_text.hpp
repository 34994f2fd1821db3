#pragma once

#include <cstdint>
#include <string>

namespace skein::cli {

/// What a byte-level model writes, as text: whole UTF-8 characters. A byte that begins none, and a
/// character that could do something to a terminal, become U+FFFD.
class GeneratedText {
 public:
  /// Returns the characters that `byte` completes; often one, often none.
  std::string add(uint8_t byte) {
    waiting_.push_back(static_cast<char>(byte));
    return take(false);
  }
  /// Nothing comes any more. Returns what waited.
  std::string end() { return take(true); }

 private:
  std::string take(bool is_end);

  std::string waiting_;  // The beginning of one character.
};

}  // namespace skein::cli
