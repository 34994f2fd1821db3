#include "gpu/checkpoint/text_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TextFilesTest : public ::testing::Test {
 protected:
  std::string make(const std::string& name, const std::string& tokenizer) const {
    const std::string path = folder.file(name);
    std::filesystem::create_directories(path);
    std::ofstream(path + "/tokenizer.json") << tokenizer;
    return path;
  }

  const tests::TemporaryFolder folder;
};

TEST_F(TextFilesTest, TheFirstFolderThatHasATokenizerCounts) {
  const std::string first = make("first", R"({"model": {"vocab": {"a": 0}}, "version": "1"})");
  const std::string second = make("second", R"({"model": {"vocab": {"a": 0}}})");
  std::ofstream(second + "/tokenizer_config.json") << "{}";
  std::ofstream(second + "/generation_config.json") << R"({"eos_token_id": 0})";
  const auto files = find_text_files({folder.path(), first, second}).value();
  ASSERT_THAT(files, SizeIs(2));
  EXPECT_THAT(files[0].contents, HasSubstr("version"));
  EXPECT_EQ(files[1].name, "generation_config.json");
  EXPECT_THAT(find_text_files({folder.path()}).value(), IsEmpty());
}

/// Data that another tokenizer has prepared would be learned as if it were another text.
TEST_F(TextFilesTest, ModelAndDataMeanTheSameTokens) {
  const std::string model =
      make("model", R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
                        "added_tokens": [{"id": 3, "content": "<end>", "special": true}]})");
  const std::string same =
      make("same", R"({"model": {"merges": [["a", "b"]], "vocab": {"a": 0, "ab": 2, "b": 1}},
                       "added_tokens": [{"id": 3, "content": "<end>"}], "padding": null})");
  EXPECT_TRUE(find_text_files({model, same}).ok());
  for (const char* other : {R"({"model": {"vocab": {"a": 1, "b": 0, "ab": 2}, "merges": ["a b"]},
            "added_tokens": [{"id": 3, "content": "<end>"}]})",
                            R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": []},
            "added_tokens": [{"id": 3, "content": "<end>"}]})",
                            R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})",
                            R"({"model": [], "added_tokens": 3})"}) {
    const auto found = find_text_files({model, make("other", other)});
    EXPECT_TRUE(absl::IsInvalidArgument(found.status())) << other;
    EXPECT_THAT(std::string(found.status().message()), HasSubstr("other/tokenizer.json"));
  }
  EXPECT_TRUE(absl::IsDataLoss(find_text_files({model, make("cut", "{")}).status()));
}

}  // namespace
}  // namespace skein::gpu
