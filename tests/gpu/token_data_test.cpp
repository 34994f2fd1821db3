#include "gpu/data/token_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "gpu/data/token_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

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
    (*data)->training_sample(sample, tokens, targets);
    EXPECT_EQ(tokens[0] % 4, 0);
    starts.insert(tokens[0]);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(tokens[i], tokens[0] + i);
      EXPECT_EQ(targets[i], tokens[i] + 1);
      EXPECT_LT(targets[i], 80) << "held-out data in training";
    }
  }
  EXPECT_EQ(starts.size(), 19u);
  (*data)->validation_sample(0, tokens, targets);
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
  write_bytes(folder.file("cut.bin"), llmc.data(), llmc.size() - 2);
  EXPECT_TRUE(absl::IsDataLoss(open("tokens", folder.file("cut.bin"), 1000).status()));
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
