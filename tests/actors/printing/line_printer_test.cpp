#include "actors/printing/line_printer.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::actors {
namespace {

using testing::EndsWith;
using testing::StartsWith;

constexpr int kManyLines = 30'000;
constexpr int kPageBytes = 4096;

std::string long_line(int number) { return absl::StrCat(number, " ", std::string(90, '.')); }

/// Tests in which nobody reads would wait for ever if a line waited for its reader.
class LinePrinterTest : public testing::Test {
 protected:
  LinePrinterTest() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~LinePrinterTest() override {
    close_reader();
    close_writer();
  }
  void close_reader() { close(std::exchange(ends_[0], -1)); }
  void close_writer() { close(std::exchange(ends_[1], -1)); }
  /// Until the writers have closed it.
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
  {
    LinePrinter printer(ends_[1], "it");
    printer.print("one");
    printer.print("");
    printer.print("three");
  }
  close_writer();
  EXPECT_EQ(read_all(), "one\n\nthree\n");
}

TEST_F(LinePrinterTest, WhoDoesNotReadHoldsUpNothing) {
  LinePrinter printer(ends_[1], "it");
  for (int i = 0; i < kManyLines; ++i) printer.print(long_line(i));
  EXPECT_TRUE(printer.finish(0.01).ok());
}

TEST_F(LinePrinterTest, ATerminalThatNobodyReadsHoldsUpNothing) {
  int terminal = -1, user = -1;
  ASSERT_EQ(openpty(&user, &terminal, nullptr, nullptr, nullptr), 0);
  LinePrinter printer(terminal, "it");
  for (int i = 0; i < kManyLines; ++i) printer.print(long_line(i));
  EXPECT_TRUE(printer.finish(0.01).ok());
  close(terminal);
  close(user);
}

TEST_F(LinePrinterTest, WhoeverSharesTheStreamBlocksAsBefore) {
  const LinePrinter printer(ends_[1], "it");
  EXPECT_EQ(fcntl(ends_[1], F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(LinePrinterTest, TwoPrintersOfOneStreamKeepTheirLinesWhole) {
  fcntl(ends_[1], F_SETPIPE_SZ, kPageBytes);
  std::string text;
  std::thread reader([&] { text = read_all(); });
  const auto print = [this](char letter) {
    LinePrinter printer(ends_[1], "it");
    for (int i = 0; i < kManyLines / 4; ++i) printer.print(std::string(90, letter));
    EXPECT_TRUE(printer.finish(LinePrinter::kUntilRead).ok());
  };
  std::thread other(print, 'b');
  print('a');
  other.join();
  close_writer();
  reader.join();
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line, std::string(90, line[0]));
  }
  EXPECT_EQ(count, 2 * (kManyLines / 4));
}

TEST_F(LinePrinterTest, WhoReadsLateIsToldWhatIsMissing) {
  for (const bool prints_more : {false, true}) {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    std::string text;
    std::thread reader;
    {
      LinePrinter printer(ends_[1], "it");
      for (int i = 0; i < kManyLines; ++i) printer.print(long_line(i));
      reader = std::thread([&] { text = read_all(); });
      EXPECT_TRUE(printer.finish(LinePrinter::kUntilRead).ok());
      if (prints_more) printer.print("at the end");
    }
    close_writer();
    reader.join();
    close_reader();
    EXPECT_THAT(text, StartsWith(long_line(0) + "\n" + long_line(1) + "\n"));
    EXPECT_THAT(text, EndsWith(absl::StrCat(" lines were left out here: nobody read them)\n",
                                            prints_more ? "at the end\n" : "")));
    EXPECT_GT(text.size(), size_t{1} << 20) << "a MiB waits";
  }
}

TEST_F(LinePrinterTest, NothingIsLeftOutForASlowReader) {
  std::string text;
  std::thread reader([&] { text = read_all(); });
  std::string all;
  {
    LinePrinter printer(ends_[1], "it");
    for (int i = 0; i < kManyLines; ++i) {
      printer.print(long_line(i));
      EXPECT_TRUE(printer.finish(LinePrinter::kUntilRead).ok());
      all += long_line(i) + "\n";
    }
  }
  close_writer();
  reader.join();
  EXPECT_EQ(text, all);
}

TEST_F(LinePrinterTest, ALineOfAnyLengthIsPrinted) {
  const std::string line(size_t{3} << 20, 'x');
  std::string text;
  std::thread reader([&] { text = read_all(); });
  {
    LinePrinter printer(ends_[1], "it");
    printer.print(line);
    EXPECT_TRUE(printer.finish(LinePrinter::kUntilRead).ok());
  }
  close_writer();
  reader.join();
  EXPECT_EQ(text.size(), line.size() + 1);
}

TEST_F(LinePrinterTest, AReaderThatHasLeftIsNoError) {
  signal(SIGPIPE, SIG_IGN);  // As the program does.
  LinePrinter before(ends_[1], "it");
  close_reader();
  before.print("one");
  EXPECT_TRUE(before.finish(LinePrinter::kUntilRead).ok());
  LinePrinter after(ends_[1], "it");
  after.print("one");
  EXPECT_TRUE(after.finish(LinePrinter::kUntilRead).ok());
}

TEST_F(LinePrinterTest, AFullDiskIsAnError) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  LinePrinter printer(full, "the log");
  printer.print("one");
  EXPECT_EQ(printer.finish(LinePrinter::kUntilRead).message(),
            "cannot write to the log: No space left on device");
  close(full);
}

}  // namespace
}  // namespace skein::actors
