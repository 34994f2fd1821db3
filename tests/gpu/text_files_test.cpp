#include "gpu/checkpoint/text_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/files/sha256.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

using ::testing::AllOf;
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

  /// A manifest of data that have been prepared with `tokenizer`, and nothing beside it.
  std::string make_manifest(const std::string& name, const std::string& tokenizer) const {
    std::filesystem::create_directories(folder.file(name));
    const std::string path = folder.file(name + "/manifest.json");
    std::ofstream(path) << R"({"format": "skein-tokens", "version": 1, "vocab_size": 1,
        "token_bytes": 2, "train": [], "validation": [], "tokenizer": {"sha256": ")"
                        << sha256(std::as_bytes(std::span(tokenizer))) << "\"}}";
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

/// A model's folder may say only in config.json behind which token a text ends, and a checkpoint
/// has a config.json of its own.
TEST_F(TextFilesTest, TheEndTokenOfConfigJsonGoesIntoGenerationConfig) {
  const std::string data = make("data", "{}");
  std::ofstream(data + "/generation_config.json") << R"({"eos_token_id": 7})";
  const std::string model = make("model", "{}");
  std::ofstream(model + "/config.json") << R"({"vocab_size": 9})";
  const auto generation_config = [&] {
    const std::vector<TextFile> files = find_text_files({model, data}).value();
    EXPECT_EQ(files.back().name, "generation_config.json");
    return nlohmann::json::parse(files.back().contents);
  };
  EXPECT_EQ(generation_config()["eos_token_id"], 7) << "the model's folder does not say";
  std::ofstream(model + "/config.json") << R"({"eos_token_id": [3, 4]})";
  EXPECT_EQ(generation_config(), nlohmann::json::parse(R"({"eos_token_id": [3, 4]})"));
  std::ofstream(model + "/generation_config.json") << R"({"top_p": 0.5})";
  EXPECT_EQ(generation_config(),
            nlohmann::json::parse(R"({"top_p": 0.5, "eos_token_id": [3, 4]})"));
  std::ofstream(model + "/generation_config.json") << R"({"eos_token_id": 5})";
  EXPECT_EQ(generation_config(), nlohmann::json::parse(R"({"eos_token_id": 5})"));
  std::ofstream(model + "/generation_config.json") << "no JSON";
  EXPECT_EQ(find_text_files({model, data}).value().back().contents, "no JSON");
}

/// Data are prepared with an end token behind each document.
TEST_F(TextFilesTest, TheEndTokenOfTheDataGoesIntoTheModelsGenerationConfig) {
  const std::string data = make("data", "{}");
  std::ofstream(data + "/generation_config.json") << R"({"top_k": 9, "eos_token_id": 7})";
  const std::string model = make("model", "{}");
  std::ofstream(model + "/config.json") << R"({"vocab_size": 9})";
  for (const char* said : {R"({"top_p": 0.5})", R"({"top_p": 0.5, "eos_token_id": "</s>"})"}) {
    std::ofstream(model + "/generation_config.json") << said;
    EXPECT_EQ(nlohmann::json::parse(find_text_files({model, data}).value().back().contents),
              nlohmann::json::parse(R"({"top_p": 0.5, "eos_token_id": 7})"));
    EXPECT_EQ(find_text_files({model}).value().back().contents, said);
  }
}

/// It may lie beside data by chance.
TEST_F(TextFilesTest, AConfigJsonThatSaysNoTokenIsAsGoodAsNone) {
  const std::string data = make("data", "{}");
  for (const char* config :
       {"no JSON", "[1]", R"({"eos_token_id": "</s>"})", R"({"eos_token_id": [2, "</s>"]})",
        R"({"eos_token_id": -1})", R"({"eos_token_id": 2.5})"}) {
    std::filesystem::remove(data + "/generation_config.json");
    std::ofstream(data + "/config.json") << config;
    const auto files = find_text_files({data});
    ASSERT_TRUE(files.ok()) << config << ": " << files.status();
    EXPECT_THAT(*files, SizeIs(1)) << config;
    const std::string generation = R"({"eos_token_id": "</s>"})";
    std::ofstream(data + "/generation_config.json") << generation;
    EXPECT_EQ(find_text_files({data}).value().back().contents, generation) << "it stays as it is";
  }
  std::ofstream(data + "/config.json") << R"({"eos_token_id": 2})";
  EXPECT_EQ(nlohmann::json::parse(find_text_files({data}).value().back().contents)["eos_token_id"],
            2);
}

TEST_F(TextFilesTest, AChatTemplateIsKept) {
  const std::string model = make("model", "{}");
  std::ofstream(model + "/chat_template.jinja") << "{{ messages }}";
  const std::vector<TextFile> files = find_text_files({model}).value();
  ASSERT_THAT(files, SizeIs(2));
  EXPECT_EQ(files[1].name, "chat_template.jinja");
  EXPECT_EQ(files[1].contents, "{{ messages }}");
}

/// Data that another tokenizer has prepared would be learned as if it were another text.
TEST_F(TextFilesTest, ModelAndDataMeanTheSameTokens) {
  const std::string model =
      make("model", R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
                        "added_tokens": [{"id": 3, "content": "<end>", "special": true}]})");
  const std::string same =
      make("same", R"({"model": {"merges": [["a", "b"]], "vocab": {"a": 0, "ab": 2, "b": 1}},
                       "added_tokens": [{"id": 3, "content": "<end>"}], "padding": null})");
  EXPECT_TRUE(check_same_tokens({model, same}, {}).ok());
  for (const char* other : {R"({"model": {"vocab": {"a": 1, "b": 0, "ab": 2}, "merges": ["a b"]},
            "added_tokens": [{"id": 3, "content": "<end>"}]})",
                            R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": []},
            "added_tokens": [{"id": 3, "content": "<end>"}]})",
                            R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})",
                            R"({"model": {}, "added_tokens": 3})"}) {
    const absl::Status status = check_same_tokens({model, make("other", other)}, {});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << other;
    EXPECT_THAT(std::string(status.message()), HasSubstr("other/tokenizer.json"));
  }
  EXPECT_TRUE(absl::IsDataLoss(check_same_tokens({model, make("cut", "{")}, {})));
}

/// Each checkpoint of a run would have it.
TEST_F(TextFilesTest, ATokenizerThatIsCutIsNamedAlsoWhereItIsTheOnlyOne) {
  const std::string model = make("model", R"({"model": {"type": "Unigram", "vocab": [["a", 0]]}})");
  EXPECT_TRUE(check_same_tokens({model}, {}).ok()) << "whichever kind it is";
  EXPECT_TRUE(check_tokenizer(model).ok());
  EXPECT_TRUE(check_tokenizer(folder.path()).ok()) << "there is none";
  for (const char* broken : {"", R"({"model": {"vocab": )", "[1]", "{}", R"({"model": []})"}) {
    make("model", broken);
    for (const absl::Status& status : {check_same_tokens({model}, {}), check_tokenizer(model)}) {
      EXPECT_TRUE(absl::IsDataLoss(status)) << broken << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("model/tokenizer.json")) << broken;
    }
  }
}

constexpr const char* kOneToken = R"({"model": {"vocab": {"a": 0}}})";

/// Its file may have been left behind where the data were prepared.
TEST_F(TextFilesTest, OfATokenizerThatIsNotThereTheManifestHasADigest) {
  const std::string model = make("model", kOneToken);
  plans::DataSpec data;
  data.dataset = "tokens";
  data.path = make_manifest("same", kOneToken);
  EXPECT_TRUE(check_same_tokens({model}, data).ok());
  data.path = make_manifest("other", R"({"model": {"vocab": {"b": 0}}})");
  const absl::Status status = check_same_tokens({model}, data);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("other/manifest.json"), HasSubstr("model/tokenizer.json")));
  EXPECT_TRUE(check_same_tokens({folder.path()}, data).ok()) << "the model's is not known";
  data.mixture = {folder.file("same/manifest.json")};
  EXPECT_TRUE(absl::IsInvalidArgument(check_same_tokens({}, data))) << "two of them differ";
  data.dataset = "text";
  EXPECT_TRUE(check_same_tokens({model}, data).ok()) << "bytes have no tokenizer";
}

/// The tokens of the model's are the same, and its file is written in another way.
TEST_F(TextFilesTest, ATokenizerBesideAManifestIsTheOneThatItWasPreparedWith) {
  const std::string model = make("model", R"({"version": "1", "model": {"vocab": {"a": 0}}})");
  plans::DataSpec data;
  data.dataset = "tokens";
  data.path = make_manifest("data", kOneToken);
  EXPECT_TRUE(absl::IsInvalidArgument(check_same_tokens({model}, data)));
  make("data", kOneToken);
  EXPECT_TRUE(check_same_tokens({model}, data).ok());
  make("data", R"({"model": {"vocab": {"a": 0}}, "added_tokens": []})");
  const absl::Status status = check_same_tokens({model}, data);
  EXPECT_THAT(std::string(status.message()), HasSubstr("data/tokenizer.json is not what"));
}

TEST_F(TextFilesTest, AManifestThatIsNotThereIsNamed) {
  plans::DataSpec data;
  data.dataset = "tokens";
  data.path = folder.file("none.json");
  const absl::Status status = check_same_tokens({}, data);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("none.json"));
}

/// Those of FIPS 180-4's examples, and of lengths around the ends of blocks.
TEST(Sha256, GivesThePublishedDigests) {
  const auto digest_of = [](const std::string& text) {
    return sha256(std::as_bytes(std::span(text)));
  };
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(digest_of(std::string(56, 'a')),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(digest_of(std::string(63, 'a')),
            "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  EXPECT_EQ(digest_of(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(digest_of(std::string(119, 'a')),
            "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
  EXPECT_EQ(digest_of(std::string(120, 'a')),
            "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c");
  EXPECT_EQ(digest_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace skein::gpu
