#include "cli/report/line_printer.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kManyLines = 30'000;

std::string long_line(int number) { return absl::StrCat(number, " ", std::string(90, '.')); }

class LinePrinterTest : public testing::Test {
 protected:
  LinePrinterTest() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~LinePrinterTest() override {
    close_reader();
    close_writer();
  }
  void close_reader() { close(std::exchange(ends_[0], -1)); }
  void close_writer() { close(std::exchange(ends_[1], -1)); }
  /// Until the writer has closed it.
  std::string read_all() const {
    std::string text;
    std::array<char, 4096> piece;
    for (ssize_t size = 0; (size = read(ends_[0], piece.data(), piece.size())) > 0;) {
      text.append(piece.data(), static_cast<size_t>(size));
    }
    return text;
  }
  std::array<int, 2> ends_{};
};

TEST_F(LinePrinterTest, PrintsAtOnce) {
  LinePrinter printer(ends_[1]);
  printer.print("one");
  printer.print("");
  printer.print("three");
  close_writer();
  EXPECT_EQ(read_all(), "one\n\nthree\n");
}

/// Would wait for ever if a line waited for its reader.
TEST_F(LinePrinterTest, WhoDoesNotReadHoldsUpNothing) {
  LinePrinter printer(ends_[1]);
  for (int i = 0; i < kManyLines; ++i) printer.print(long_line(i));
  EXPECT_TRUE(printer.finish(0.01).ok());
}

TEST_F(LinePrinterTest, WhoReadsLateIsToldWhatIsMissing) {
  LinePrinter printer(ends_[1]);
  for (int i = 0; i < kManyLines; ++i) printer.print(long_line(i));
  std::string text;
  std::thread reader([&] { text = read_all(); });
  EXPECT_TRUE(printer.finish(-1).ok());
  printer.print("at the end");
  EXPECT_TRUE(printer.finish(-1).ok());
  close_writer();
  reader.join();
  EXPECT_THAT(text, StartsWith(long_line(0) + "\n" + long_line(1) + "\n"));
  EXPECT_THAT(text, HasSubstr(" lines were left out: nobody read them)\nat the end\n"));
  EXPECT_THAT(text, EndsWith("at the end\n"));
  EXPECT_GT(text.size(), size_t{1} << 20) << "a MiB waits";
}

TEST_F(LinePrinterTest, NothingIsLeftOutForASlowReader) {
  LinePrinter printer(ends_[1]);
  std::string text;
  std::thread reader([&] { text = read_all(); });
  std::string all;
  for (int i = 0; i < kManyLines; ++i) {
    printer.print(long_line(i));
    EXPECT_TRUE(printer.finish(-1).ok());
    all += long_line(i) + "\n";
  }
  close_writer();
  reader.join();
  EXPECT_EQ(text, all);
}

TEST_F(LinePrinterTest, AReaderThatHasLeftIsNoError) {
  signal(SIGPIPE, SIG_IGN);  // As the program does.
  close_reader();
  LinePrinter printer(ends_[1]);
  printer.print("one");
  EXPECT_TRUE(printer.finish(-1).ok());
}

TEST_F(LinePrinterTest, AFullDiskIsAnError) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  LinePrinter printer(full);
  printer.print("one");
  EXPECT_THAT(std::string(printer.finish(-1).message()), HasSubstr("No space left"));
  close(full);
}

}  // namespace
}  // namespace skein::cli
