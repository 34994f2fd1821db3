#include "cli/verbs/generated_text.hpp"

#include <string>

#include <gtest/gtest.h>

namespace skein::cli {
namespace {

std::string shown(const std::string& bytes) {
  GeneratedText text;
  std::string all;
  for (char c : bytes) all += text.add(static_cast<uint8_t>(c));
  return all + text.end();
}

TEST(GeneratedText, LinesAndCharactersOfSeveralBytesAreShownAsTheyAre) {
  EXPECT_EQ(shown("In the\n\tbeginning"), "In the\n\tbeginning");
  EXPECT_EQ(shown("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\xa7\xb5"), "café € 🧵");
}

TEST(GeneratedText, ACharacterIsShownWhenItIsWhole) {
  GeneratedText text;
  EXPECT_EQ(text.add('a'), "a");
  EXPECT_EQ(text.add(0xc3), "");
  EXPECT_EQ(text.add(0xa9), "é");
}

TEST(GeneratedText, WhatIsNoTextIsReplaced) {
  EXPECT_EQ(shown("a\xa5z"), "a\ufffdz");
  EXPECT_EQ(shown("a\xc3z"), "a\ufffdz") << "the next character is its own";
  EXPECT_EQ(shown("a\xe2\x82"), "a\ufffd\ufffd") << "nothing is kept back at the end";
  EXPECT_EQ(shown("\x1b[2J"), "\ufffd[2J") << "no model clears a terminal";
  EXPECT_EQ(shown(std::string(1, '\0')), "\ufffd");
}

}  // namespace
}  // namespace skein::cli
