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
  EXPECT_EQ(file.bytes(), before.rfind('\n') + 1) << "whole lines";
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

TEST(LineFile, ALineThatAKilledWriterHasTornGoes) {
  EXPECT_EQ(appended_to("zero\n{\"st"), "zero\none\ntwo\n");
  EXPECT_EQ(appended_to("{\"st"), "one\ntwo\n");
  for (const size_t length : {4095, 4096, 4097, 10'000}) {
    const std::string torn(length, 'x');
    EXPECT_EQ(appended_to(torn), "one\ntwo\n") << length;
    EXPECT_EQ(appended_to("zero\n" + torn), "zero\none\ntwo\n") << length;
  }
}

/// A second process may have opened the file of a run that goes on, and is refused later.
TEST(LineFile, ALineThatIsStillBeingWrittenStays) {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("lines");
  std::ofstream(path) << "zero\n{\"st";
  LineFile file;
  ASSERT_TRUE(file.open(path).ok());
  std::ofstream(path, std::ios::app) << "ep\": 1}\n";
  file.append("one");
  std::ifstream written(path);
  const std::string all{std::istreambuf_iterator<char>(written), {}};
  EXPECT_THAT(all, testing::HasSubstr("zero\n{\"step\": 1}\n"));
}

TEST(LineFile, SaysWhichFileCannotBeWritten) {
  LineFile file;
  EXPECT_THAT(std::string(file.open("/nope/lines").message()), testing::HasSubstr("/nope/lines"));
}

}  // namespace
}  // namespace skein::cli
