#include "gpu/checkpoint/byte_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "gpu/text/byte_alphabet.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

/// A tokenizer whose token i is byte i, or byte 255 - i.
Json tokenizer_of_bytes(bool is_reversed) {
  std::ifstream file("tests/golden/text/tokenizers.json");
  Json tokenizer = Json::parse(file)["base"];
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const std::string written = written_of_bytes(std::string(1, static_cast<char>(byte)));
    vocabulary[written] = is_reversed ? 255 - byte : byte;
  }
  tokenizer["model"]["vocab"] = vocabulary;
  tokenizer["model"]["merges"] = Json::array();
  tokenizer["added_tokens"] = Json::array();
  return tokenizer;
}

class ByteTokensTest : public ::testing::Test {
 protected:
  absl::Status check(const std::string& tokenizer, const std::string& dataset = "text") const {
    std::ofstream(folder_.file("tokenizer.json")) << tokenizer;
    plans::DataSpec data;
    data.dataset = dataset;
    return check_bytes_are_tokens({folder_.path()}, data);
  }

  const tests::TemporaryFolder folder_;
};

TEST_F(ByteTokensTest, BytesAreTokensOfATokenizerOfBytesOnly) {
  EXPECT_EQ(check(tokenizer_of_bytes(false).dump()), absl::OkStatus());
  const absl::Status other = check(tokenizer_of_bytes(true).dump());
  EXPECT_TRUE(absl::IsInvalidArgument(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("tokenizer.json; give token files"));
  EXPECT_TRUE(absl::IsInvalidArgument(check(tokenizer_of_bytes(true).dump(), "kjv")));
  EXPECT_EQ(check(tokenizer_of_bytes(true).dump(), "tokens"), absl::OkStatus());
}

TEST_F(ByteTokensTest, ATokenizerThatIsNotReadIsNotOfBytes) {
  EXPECT_TRUE(absl::IsInvalidArgument(check(R"({"model": {"type": "Unigram"}})")));
  EXPECT_TRUE(absl::IsDataLoss(check("{")));
  std::filesystem::remove(folder_.file("tokenizer.json"));
  plans::DataSpec data;
  data.dataset = "text";
  EXPECT_EQ(check_bytes_are_tokens({folder_.path()}, data), absl::OkStatus());
}

}  // namespace
}  // namespace skein::gpu
