#pragma once

#include <cstddef>
#include <string_view>

namespace skein::plans {

/// Bytes of the character that `text` begins with; 0 if it is empty or not UTF-8. Overlong forms,
/// halves of surrogate pairs and what is beyond Unicode are none.
size_t character_bytes(std::string_view text);
/// All of it is such characters.
bool is_utf8(std::string_view text);
/// Whether the bytes that a file begins with are text, and not numbers of two or four bytes: UTF-8
/// without NUL, in which few characters are control characters, as escapes of a terminal; those of
/// lines and pages do not count. `is_cut`: the last character may go on behind them.
bool looks_like_text(std::string_view bytes, bool is_cut);
/// Whether a terminal or a log may show the one character that `character` is: no control
/// character, and none by which a reader may take a line for another one. Ends of lines and tabs
/// only if it `may_have_lines`. False if it is empty.
bool is_readable(std::string_view character, bool may_have_lines);

}  // namespace skein::plans
