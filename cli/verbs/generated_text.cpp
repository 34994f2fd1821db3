#include "cli/verbs/generated_text.hpp"

#include <algorithm>

#include "plans/base/readable_text.hpp"

namespace skein::cli {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD.

size_t expected_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
}

}  // namespace

std::string GeneratedText::take(bool is_end) {
  std::string text;
  while (!waiting_.empty()) {
    const size_t length = plans::character_bytes(waiting_);
    if (length == 0 && !is_end && waiting_.size() < expected_bytes(waiting_.front())) break;
    const std::string character = waiting_.substr(0, length);
    text += plans::is_readable(character, true) ? character : kReplacement;
    waiting_.erase(0, std::max<size_t>(length, 1));
  }
  return text;
}

}  // namespace skein::cli
