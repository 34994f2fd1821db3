#include "cli/config/json_text.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::cli {
namespace {

TEST(JsonText, KeepsTheOrderOfKeys) {
  const Json json = parse_json(R"({"b": 1, "a": [true, null]})");
  EXPECT_EQ(json_text(json), R"({"b":1,"a":[true,null]})");
  EXPECT_EQ(json_text(json["a"], 1), "[\n true,\n null\n]");
}

TEST(JsonText, OfTextThatIsNoneSaysWhereAndWhy) {
  const std::string text = "{\n\"a\": 1,\n]";
  EXPECT_TRUE(parse_json(text).is_discarded());
  EXPECT_THAT(json_complaint(text), testing::StartsWith("3: "));
  EXPECT_THAT(json_complaint(text), testing::HasSubstr("unexpected ']'"));
}

TEST(JsonText, ReplacesBytesThatAreNoText) {
  EXPECT_EQ(json_text(Json("a\xFF")), "\"a\xEF\xBF\xBD\"");
}

TEST(JsonText, OtherTypesAreAsGoodAsNothing) {
  const Json json = {{"text", "a"}, {"number", 3}};
  EXPECT_EQ(text_at(json, "text"), "a");
  EXPECT_EQ(text_at(json, "number"), "");
  EXPECT_EQ(text_at(json, "missing"), "");
  EXPECT_EQ(text_at(Json(7), "text"), "");
  EXPECT_EQ(number_at(json, "number", -1), 3);
  EXPECT_EQ(number_at(json, "text", -1), -1);
  EXPECT_EQ(number_at(Json::array(), "number", -1), -1);
}

}  // namespace
}  // namespace skein::cli
