#include "gpu/data/token_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/data/token_file.hpp"
#include "gpu/files/mapped_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void write_bytes(const std::string& path, const void* data, size_t bytes) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

struct TokenDataTest : testing::Test {
  absl::StatusOr<std::unique_ptr<TokenData>> open(const std::string& dataset,
                                                  const std::string& path,
                                                  int64_t vocabulary = 256) {
    TokenData::Options options;
    options.data.dataset = dataset;
    options.data.path = path;
    options.data.validation_fraction = 0.2;
    options.seq_len = 4;
    options.vocab_size = vocabulary;
    options.seed = 3;
    return TokenData::open(options);
  }
  std::string text_of(size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(i));
    const std::string path = folder.file("text");
    write_bytes(path, text.data(), text.size());
    return path;
  }
  tests::TemporaryFolder folder;
};

TEST_F(TokenDataTest, WindowsOfOnePassCoverTheTextOnceWithTargetsOneAhead) {
  const auto data = open("text", text_of(100));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->training_tokens(), 80);
  EXPECT_EQ((*data)->training_windows(), 19);
  std::set<int32_t> starts;
  std::vector<int32_t> tokens(4), targets(4);
  for (uint64_t sample = 0; sample < 19; ++sample) {
    ASSERT_TRUE((*data)->training_sample(sample, tokens, targets).ok());
    EXPECT_EQ(tokens[0] % 4, 0);
    starts.insert(tokens[0]);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(tokens[i], tokens[0] + i);
      EXPECT_EQ(targets[i], tokens[i] + 1);
      EXPECT_LT(targets[i], 80) << "held-out data in training";
    }
  }
  EXPECT_EQ(starts.size(), 19u);
  ASSERT_TRUE((*data)->validation_sample(0, tokens, targets).ok());
  EXPECT_EQ(tokens[0], 80);
}

TEST_F(TokenDataTest, ReadsNanoGptAndLlmcFilesAlike) {
  std::vector<uint16_t> raw(100);
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<uint16_t>(300 + i);
  write_bytes(folder.file("nano.bin"), raw.data(), 200);
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 100;
  std::vector<char> llmc(1024 + 200);
  std::memcpy(llmc.data(), header.data(), 1024);
  std::memcpy(llmc.data() + 1024, raw.data(), 200);
  write_bytes(folder.file("llmc.bin"), llmc.data(), llmc.size());
  const auto a = open("tokens", folder.file("nano.bin"), 1000);
  const auto b = open("tokens", folder.file("llmc.bin"), 1000);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ((*a)->digest(), (*b)->digest());
  for (const size_t bytes : {llmc.size() - 2, size_t{600}}) {
    write_bytes(folder.file("cut.bin"), llmc.data(), bytes);
    const absl::Status status = open("tokens", folder.file("cut.bin"), 50'000).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("its header says version 1"));
  }
}

/// Two letters would be a token that no text has.
TEST_F(TokenDataTest, TextIsNoTokenFile) {
  const std::string long_text = std::string(4095, 'a') + "\u00e9\n";
  for (const std::string& text :
       {std::string("In the beginning\r\n\tGod created"), std::string("{\"format\": \"any\"}\n"),
        std::string("\x1b[1mThe geese\x1b[0m fly on\f"),
        std::string("\u0432 \u043d\u0430\u0447\u0430\u043b\u0435 \u0431\u044b"), long_text}) {
    write_bytes(folder.file("corpus"), text.data(), text.size());
    const absl::Status status = open("tokens", folder.file("corpus"), 1 << 16).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("corpus is text"), HasSubstr("skein-prepare")));
  }
  std::string tokens = long_text;
  tokens[100] = '\0';
  write_bytes(folder.file("tokens"), tokens.data(), tokens.size());
  EXPECT_TRUE(open("tokens", folder.file("tokens"), 1 << 16).ok());
  write_bytes(folder.file("few"), "abcdefghijklmn", 14);
  EXPECT_THAT(std::string(open("tokens", folder.file("few"), 1 << 16).status().message()),
              HasSubstr("too few"));
}

TEST_F(TokenDataTest, SaysWhatIsWrongWithAFile) {
  EXPECT_TRUE(absl::IsNotFound(open("text", folder.file("none")).status()));
  EXPECT_TRUE(absl::IsDataLoss(open("text", text_of(10)).status())) << "too short to validate";
  EXPECT_TRUE(absl::IsDataLoss(open("text", text_of(0)).status()));
  const auto beyond = open("text", text_of(100), 50).status();
  EXPECT_TRUE(absl::IsInvalidArgument(beyond));
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("token 50 of the data is 50"));
  write_bytes(folder.file("odd.bin"), "abc", 3);
  EXPECT_TRUE(absl::IsDataLoss(open("tokens", folder.file("odd.bin")).status()));
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsDataLoss(open("text", folder.file("pipe")).status())) << "nobody writes";
}

/// llm.c's file with `count` tokens from `first` on.
void write_tokens(const std::string& path, int32_t first, int32_t count, bool is_wide = false) {
  std::vector<int32_t> words(256, 0);
  words[0] = is_wide ? 20240801 : 20240520;
  words[1] = is_wide ? 7 : 1;
  words[2] = count;
  std::vector<char> bytes(1024);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  for (int32_t token = first; token < first + count; ++token) {
    const auto* raw = reinterpret_cast<const char*>(&token);  // Little-endian.
    bytes.insert(bytes.end(), raw, raw + (is_wide ? 4 : 2));
  }
  write_bytes(path, bytes.data(), bytes.size());
}

/// The first tokens of the first `count` samples.
std::vector<int32_t> firsts(const TokenData& data, uint64_t count) {
  std::vector<int32_t> all, tokens(4), targets(4);
  for (uint64_t sample = 0; sample < count; ++sample) {
    EXPECT_TRUE(data.training_sample(sample, tokens, targets).ok());
    for (int i = 0; i < 4; ++i) EXPECT_EQ(targets[i], tokens[0] + i + 1) << "crosses a border";
    all.push_back(tokens[0]);
  }
  return all;
}

TEST_F(TokenDataTest, APatternMeansShardsInTheOrderOfTheirNames) {
  write_tokens(folder.file("s_1.bin"), 100, 41);
  write_tokens(folder.file("s_0.bin"), 0, 22, /*is_wide=*/true);
  write_tokens(folder.file("s_2.bin"), 200, 6);
  const auto data = open("tokens", folder.file("s_*.bin"), 300).value();
  // A fifth of 69 tokens, from the end: all 6 of the last shard and 7 of the one before.
  EXPECT_EQ(data->validation_tokens(), 13);
  EXPECT_EQ(data->training_tokens(), 56);
  EXPECT_EQ(data->training_windows(), 5 + 8);
  const std::vector<int32_t> all = firsts(*data, 13);
  EXPECT_EQ(std::set<int32_t>(all.begin(), all.end()),
            (std::set<int32_t>{0, 4, 8, 12, 16, 100, 104, 108, 112, 116, 120, 124, 128}));
  std::vector<int32_t> tokens(4), targets(4);
  ASSERT_TRUE(data->validation_sample(0, tokens, targets).ok());
  EXPECT_EQ(tokens[0], 134);
  EXPECT_TRUE(absl::IsNotFound(open("tokens", folder.file("t_*.bin")).status()));
}

TEST_F(TokenDataTest, TheDigestKnowsWhereFilesEndAndThatOfOlderCheckpointsDoesNot) {
  std::vector<uint64_t> digests, of_tokens;
  for (const int32_t cut : {20, 24}) {
    write_tokens(folder.file("s_0.bin"), 0, cut);
    write_tokens(folder.file("s_1.bin"), cut, 60 - cut);
    const auto data = open("tokens", folder.file("s_*.bin")).value();
    digests.push_back(data->digest());
    of_tokens.push_back(data->digest_of_tokens());
  }
  EXPECT_NE(digests[0], digests[1]);
  EXPECT_EQ(of_tokens[0], of_tokens[1]);
}

TEST_F(TokenDataTest, SaysWhichDataAreTooFewForAWindow) {
  TokenData::Options options;
  options.seq_len = 4;
  options.vocab_size = 256;
  options.data.dataset = "tokens";
  options.data.path = folder.file("s_*.bin");
  options.data.validation_path = folder.file("held.bin");
  const auto message = [&] { return std::string(TokenData::open(options).status().message()); };
  write_tokens(folder.file("s_0.bin"), 0, 4);
  write_tokens(folder.file("s_1.bin"), 0, 4);
  write_tokens(folder.file("held.bin"), 0, 3);
  EXPECT_THAT(message(), AllOf(HasSubstr("s_*.bin leaves 8 tokens for training in 2 files, none"),
                               HasSubstr("use larger files")));
  write_tokens(folder.file("s_1.bin"), 0, 5);
  EXPECT_THAT(message(), AllOf(HasSubstr("held.bin leaves 3 tokens for validation, too few"),
                               HasSubstr("use more data")));
  options.data.path.clear();
  options.data.mixture = {folder.file("s_0.bin"), folder.file("held.bin")};
  EXPECT_THAT(message(), HasSubstr("data of data.mixture leaves 7 tokens for training in 2 files"));
  options.data.weights = {1, 1};
  EXPECT_THAT(message(), HasSubstr("s_0.bin leaves 4 tokens for training, too few"));
}

TEST_F(TokenDataTest, ATokenBeyondTheVocabularyOfItsManifestIsNamed) {
  write_tokens(folder.file("a.bin"), 0, 40);
  std::ofstream(folder.file("manifest.json"))
      << R"({"format": "skein-tokens", "version": 1, "token_bytes": 2, "vocab_size": 10,
             "train": [{"file": "a.bin", "tokens": 40}], "validation": []})";
  const absl::Status status = open("tokens", folder.file("manifest.json"), 100).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("a.bin: token 10 of the data is 10, beyond vocab_size = 10 of its "
                              "manifest"),
                    HasSubstr("prepare the data again")));
}

TEST_F(TokenDataTest, AManifestNamesShardsAndWhatIsHeldOut) {
  write_tokens(folder.file("a.bin"), 0, 22);
  write_tokens(folder.file("b.bin"), 60'000, 9);
  write_tokens(folder.file("wide.bin"), 0, 22, /*is_wide=*/true);
  const std::string path = folder.file("manifest.json");
  const auto manifest = [&](const std::string& train, const auto& vocabulary) {
    std::ofstream(path) << R"({"format": "skein-tokens", "version": 1, "token_bytes": 2,
                               "vocab_size": )"
                        << vocabulary << R"(, "train": [)" << train
                        << R"(], "validation": [{"file": "b.bin", "tokens": 9}]})";
    return open("tokens", path, 100'000);
  };
  const auto data = manifest(R"({"file": "a.bin", "tokens": 22})", 100'000).value();
  EXPECT_EQ(data->training_tokens(), 22);
  EXPECT_EQ(data->validation_windows(), 2);
  const auto message = [](const auto& result) { return std::string(result.status().message()); };
  EXPECT_THAT(message(manifest(R"({"file": "a.bin", "tokens": 21})", 100)), HasSubstr("says 21"));
  EXPECT_THAT(message(manifest(R"({"file": "wide.bin", "tokens": 22})", 100)),
              HasSubstr("22 tokens of 4 bytes"));
  EXPECT_THAT(message(manifest(R"({"file": "../a.bin", "tokens": 22})", 100)),
              HasSubstr("no file beside it"));
  EXPECT_THAT(message(manifest(R"({"file": "c.bin", "tokens": 22})", 100)), HasSubstr("c.bin"));
  EXPECT_THAT(message(manifest("3", 100)), HasSubstr("train"));
  EXPECT_THAT(message(manifest(R"({"file": "a.bin", "tokens": 22})", 100'001)),
              HasSubstr("beyond model.vocab_size"));
  EXPECT_TRUE(absl::IsNotFound(open("tokens", folder.file("none.json")).status()));
  EXPECT_THAT(
      message(manifest(R"({"file": "a.bin", "tokens": 22}, {"file": "a.bin", "tokens": 22})", 9)),
      HasSubstr("lists a.bin twice"));
  EXPECT_THAT(message(manifest(R"({"file": "b.bin", "tokens": 9})", 9)),
              HasSubstr("lists b.bin twice"));
  std::filesystem::create_symlink(folder.file("b.bin"), folder.file("link.bin"));
  std::filesystem::create_hard_link(folder.file("b.bin"), folder.file("name.bin"));
  for (const char* name : {"link.bin", "name.bin"}) {
    const auto shard = absl::StrCat(R"({"file": ")", name, R"(", "tokens": 9})");
    EXPECT_THAT(message(manifest(shard, 9)),
                HasSubstr(absl::StrCat("lists ", name, " and b.bin, which are one file")));
  }
  for (const char* name : {"", ".", "..", "/etc/passwd", "a.bin\\u0000.txt", "a.bin\\n"}) {
    const auto data = manifest(absl::StrCat(R"({"file": ")", name, R"(", "tokens": 22})"), 9);
    EXPECT_TRUE(absl::IsDataLoss(data.status())) << data.status();
    EXPECT_THAT(message(data), AllOf(HasSubstr(name), HasSubstr("is no file beside it")));
  }
  for (const char* vocabulary : {"0", "-1", "2147483648", "18446744073709551615"}) {
    const auto data = manifest(R"({"file": "a.bin", "tokens": 22})", vocabulary);
    EXPECT_TRUE(absl::IsDataLoss(data.status())) << data.status();
    EXPECT_THAT(message(data), HasSubstr(absl::StrCat("\"vocab_size\" is ", vocabulary)));
  }
}

TEST_F(TokenDataTest, NoSourceTrainsOnWhatAnotherHoldsOut) {
  write_tokens(folder.file("a.bin"), 0, 22);
  write_tokens(folder.file("b.bin"), 1000, 22);
  std::filesystem::create_hard_link(folder.file("b.bin"), folder.file("c.bin"));
  const auto manifest = [&](const std::string& name, const char* train, const char* held_out) {
    std::ofstream(folder.file(name))
        << R"({"format": "skein-tokens", "version": 1, "token_bytes": 2, "vocab_size": 2000, )"
        << R"("train": [{"file": ")" << train << R"(", "tokens": 22}], )"
        << R"("validation": [{"file": ")" << held_out << R"(", "tokens": 22}]})";
    return folder.file(name);
  };
  TokenData::Options options;
  options.seq_len = 4;
  options.vocab_size = 2000;
  const std::string first = manifest("first.json", "a.bin", "b.bin");
  const std::string second = manifest("second.json", "c.bin", "a.bin");
  options.data = {"tokens", "", {first, second}, {3, 1}, "", 0.2};
  const absl::Status status = TokenData::open(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("are held out for validation"));
  options.data.validation_path = folder.file("a.bin");
  EXPECT_TRUE(TokenData::open(options).ok()) << "as it was asked for";
  options.data = {"tokens", "", {folder.file("a.bin"), folder.file("a.bin")}, {3, 1}, "", 0.4};
  EXPECT_TRUE(TokenData::open(options).ok()) << "both hold out the same";
}

TEST_F(TokenDataTest, AMixtureTakesSamplesByWeightAndEachSourcesWindowsInTurn) {
  write_tokens(folder.file("a.bin"), 0, 101);
  write_tokens(folder.file("b.bin"), 1000, 51);
  TokenData::Options options;
  options.data = {"tokens", "", {folder.file("a.bin"), folder.file("b.bin")}, {3, 1}, "", 0.2};
  options.seq_len = 4;
  options.vocab_size = 2000;
  options.seed = 3;
  const auto data = TokenData::open(options).value();
  const std::vector<int32_t> all = firsts(*data, 4096);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](int32_t token) { return token < 1000; }),
            3072);
  // Each pass of a source has each of its windows once.
  std::vector<int32_t> second;
  for (const int32_t token : all) {
    if (token >= 1000) second.push_back(token);
  }
  const std::set<int32_t> pass(second.begin(), second.begin() + 10);
  EXPECT_EQ(pass.size(), 10u);
  EXPECT_EQ(std::set<int32_t>(second.begin() + 10, second.begin() + 20), pass);
  EXPECT_EQ(firsts(*TokenData::open(options).value(), 4096), all);
  options.data.weights.clear();
  const std::vector<int32_t> unweighted = firsts(*TokenData::open(options).value(), 30);
  EXPECT_EQ(std::set<int32_t>(unweighted.begin(), unweighted.end()).size(), 30u);
}

TEST_F(TokenDataTest, OpeningALargeFileDoesNotLookAtEachTokenButReadingAWindowDoes) {
  std::string text(5'000'000, 'a');
  text[1'000'001] = 'z';
  write_bytes(folder.file("large"), text.data(), text.size());
  const auto data = open("text", folder.file("large"), 'z').value();
  std::vector<int32_t> tokens(4), targets(4);
  int bad = 0;
  for (uint64_t sample = 0; sample < static_cast<uint64_t>(data->training_windows()); ++sample) {
    const absl::Status status = data->training_sample(sample, tokens, targets);
    if (status.ok()) continue;
    ++bad;
    EXPECT_TRUE(absl::IsDataLoss(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("large: token 1000001 is 122, beyond"));
  }
  EXPECT_EQ(bad, 1);
  text.back() = 'b';
  write_bytes(folder.file("other"), text.data(), text.size());
  EXPECT_NE(open("text", folder.file("other"), 'z').value()->digest(), data->digest());
}

TEST_F(TokenDataTest, NoticesThatSomebodyHasWrittenIntoTheFile) {
  const std::string path = text_of(100);
  const auto data = open("text", path).value();
  EXPECT_TRUE(data->is_unchanged());
  std::fstream(path, std::ios::in | std::ios::out).seekp(50).put('x');
  EXPECT_FALSE(data->is_unchanged());
  const auto again = open("text", path).value();
  EXPECT_NE(again->digest(), data->digest());
  write_bytes(folder.file("other"), "other", 5);
  std::filesystem::rename(folder.file("other"), path);
  EXPECT_FALSE(again->is_unchanged()) << "another file in its place";
  std::filesystem::remove(path);
  EXPECT_FALSE(again->is_unchanged());
}

TEST_F(TokenDataTest, AFileThatBecomesShorterEndsTheProcessWithALine) {
  const std::string path = text_of(100'000);
  EXPECT_EXIT(
      {
        end_on_truncated_files(3);
        const auto file = MappedFile::open(path).value();
        std::filesystem::resize_file(path, 10);
        volatile std::byte last = file->data()[99'999];
        (void)last;
      },
      testing::ExitedWithCode(3), "has become shorter");
}

}  // namespace
}  // namespace skein::gpu
