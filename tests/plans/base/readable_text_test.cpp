#include "plans/base/readable_text.hpp"

#include <gtest/gtest.h>

#include <string>

namespace skein::plans {
namespace {

TEST(ReadableText, CharactersAreWholeUtf8) {
  EXPECT_EQ(character_bytes(""), 0u);
  EXPECT_EQ(character_bytes("ab"), 1u);
  EXPECT_EQ(character_bytes("\xc3\xa9t"), 2u);
  EXPECT_EQ(character_bytes("\xe2\x82\xac"), 3u);
  EXPECT_EQ(character_bytes("\xf0\x9f\x8c\xb1"), 4u);
  for (const char* wrong : {"\x80",              // A continuation without a beginning.
                            "\xc3",              // The rest is missing,
                            "\xe2\x82",          // here, too,
                            "\xf0\x9f\x8c",      // and here.
                            "\xc3(",             // No continuation.
                            "\xc0\xaf",          // Overlong forms of two,
                            "\xe0\x9f\xbf",      // three
                            "\xf0\x8f\xbf\xbf",  // and four bytes.
                            "\xed\xa0\x80",      // Half of a surrogate pair.
                            "\xf4\x90\x80\x80",  // Beyond Unicode.
                            "\xff"}) {
    EXPECT_EQ(character_bytes(wrong), 0u) << testing::PrintToString(std::string(wrong));
  }
}

TEST(ReadableText, AFewControlCharactersMakeNoNumbersOfText) {
  for (const char* text :
       {"", "the geese\r\n\tfly\n", "page one\f\fpage two\v", "\x1b[1mthe geese\x1b[0m fly",
        "the geese\x7f fly", "\xef\xbb\xbfthe geese"}) {
    EXPECT_TRUE(looks_like_text(text, false)) << testing::PrintToString(std::string(text));
  }
  const std::string with_nul("the geese\0fly over", 18);
  EXPECT_FALSE(looks_like_text(with_nul, false));
  for (const char* numbers : {"a\x01z\x02q\x1eu\x04", "the geese\xff fly"}) {
    EXPECT_FALSE(looks_like_text(numbers, false)) << testing::PrintToString(std::string(numbers));
  }
  EXPECT_TRUE(looks_like_text("the geese\xe2\x82", true)) << "the rest is behind";
  EXPECT_FALSE(looks_like_text("the geese\xe2\x82", false));
  EXPECT_FALSE(looks_like_text("the\xe2\x82 geese", true));
}

TEST(ReadableText, NothingThatMovesOrTurnsALineIsShown) {
  for (const char* shown : {"a", " ", "~", "\xc2\xa0", "\xe2\x82\xac", "\xf0\x9f\x8c\xb1"}) {
    EXPECT_TRUE(is_readable(shown, false)) << shown;
  }
  for (const char* line : {"\n", "\t", "\r"}) {
    EXPECT_FALSE(is_readable(line, false));
    EXPECT_TRUE(is_readable(line, true));
  }
  for (const char* hidden : {"", "\x1b", "\x07", "\x7f",
                             "\xc2\x9b",         // The upper control characters have escapes, too.
                             "\xe2\x80\xa8",     // A line's end.
                             "\xe2\x80\xae",     // From right to left.
                             "\xe2\x81\xa6"}) {  // An isolate.
    EXPECT_FALSE(is_readable(hidden, true)) << testing::PrintToString(std::string(hidden));
  }
}

}  // namespace
}  // namespace skein::plans
