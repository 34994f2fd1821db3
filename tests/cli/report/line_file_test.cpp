#include "cli/report/line_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

/// What a file with `before` in it holds when two lines have been appended.
std::string appended_to(const std::string& before) {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("lines");
  std::ofstream(path) << before;
  LineFile file;
  EXPECT_TRUE(file.open(path).ok());
  EXPECT_EQ(file.bytes(), before.size());
  file.append("one");
  file.append("two");
  std::ifstream written(path);
  std::string all{std::istreambuf_iterator<char>(written), {}};
  EXPECT_EQ(file.bytes(), all.size());
  return all;
}

TEST(LineFile, AppendsWholeLines) {
  EXPECT_EQ(appended_to(""), "one\ntwo\n");
  EXPECT_EQ(appended_to("zero\n"), "zero\none\ntwo\n");
}

TEST(LineFile, ALineThatWasCutEndsBeforeTheNextOne) {
  EXPECT_EQ(appended_to("zero\n{\"st"), "zero\n{\"st\none\ntwo\n");
}

TEST(LineFile, SaysWhichFileCannotBeWritten) {
  LineFile file;
  EXPECT_THAT(std::string(file.open("/nope/lines").message()), testing::HasSubstr("/nope/lines"));
}

}  // namespace
}  // namespace skein::cli
