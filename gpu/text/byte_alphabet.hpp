#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace skein::gpu {

/// Byte-level vocabularies write each byte as a character that can be seen (GPT-2, section 2.2):
/// printable ones of Latin-1 as themselves, the others as U+0100 and those behind it in order.
/// The bytes that `written` stands for; none if it has a character that stands for no byte, or is
/// no UTF-8.
std::optional<std::string> bytes_of_written(std::string_view written);
/// The inverse, as UTF-8.
std::string written_of_bytes(std::string_view bytes);

}  // namespace skein::gpu
