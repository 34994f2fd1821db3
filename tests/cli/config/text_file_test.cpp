#include "cli/config/text_file.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"
#include "tests/support/without_rights.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;

class TextFileTest : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(folder_.file("job.toml")) << text;
    return folder_.file("job.toml");
  }
  static void expect_refused(const std::string& path, absl::StatusCode code,
                             const std::string& message) {
    const absl::Status status = read_text_file(path, "job file", 4).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(std::string(status.message()), message);
  }

  tests::TemporaryFolder folder_;
};

TEST_F(TextFileTest, IsReadUpToItsBound) {
  EXPECT_EQ(read_text_file(write(""), "job file", 4).value(), "");
  EXPECT_EQ(read_text_file(write("a\nb"), "job file", 4).value(), "a\nb");
  const std::string path = write("12345");
  EXPECT_EQ(read_text_file(path, "job file", 5).value(), "12345");
  expect_refused(path, absl::StatusCode::kInvalidArgument,
                 path + " has more than 4 bytes; it is no job file");
}

TEST_F(TextFileTest, IsMissingWhereNoFileIs) {
  const std::string below = write("text") + "/job.toml";
  for (const std::string& path : {folder_.file("none"), folder_.path(), below}) {
    expect_refused(path, absl::StatusCode::kInvalidArgument, "no job file " + path);
  }
}

TEST_F(TextFileTest, IsNotSaidToBeMissingIfItCannotBeRead) {
  const std::string loop = folder_.file("loop");
  fs::create_symlink(loop, loop);
  expect_refused(loop, absl::StatusCode::kUnavailable,
                 "cannot read " + loop + ": Too many levels of symbolic links");
  const std::string closed = write("text");
  fs::permissions(folder_.path(), fs::perms::all);
  fs::permissions(closed, fs::perms::none);
  const tests::WithoutRights nobody;
  expect_refused(closed, absl::StatusCode::kPermissionDenied,
                 "cannot read " + closed + ": Permission denied");
}

}  // namespace
}  // namespace skein::cli
