#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace skein::cli {

/// Patience at the end of a process: its last lines are for somebody who still reads.
inline constexpr double kReaderPatienceSeconds = 10;

/// Prints whole lines for somebody who may stop reading: a pager, a terminal that is held, a
/// collector of logs that hangs. Nothing that is printed holds the caller up: what does not fit
/// into the reader's pipe waits here, at most a MiB of it, and what is more than that is left out
/// and counted. One thread at a time.
class LinePrinter {
 public:
  /// `descriptor` is open as long as this lives.
  explicit LinePrinter(int descriptor);
  LinePrinter(const LinePrinter&) = delete;
  LinePrinter& operator=(const LinePrinter&) = delete;

  void print(const std::string& line);
  /// Gives the reader time for what waits, as long as it goes on reading: returns when all is
  /// printed, or when nothing was taken for `patience_seconds`; -1: for as long as it takes.
  /// Unavailable if a line could not be written; whoever has closed the stream has what it wanted.
  absl::Status finish(double patience_seconds);

 private:
  /// Until nothing is left, or the stream takes nothing for so long.
  void flush(int patience_ms);

  const int descriptor_;
  std::string waiting_;  // Whole lines, but for the first one's part that is printed.
  uint64_t left_out_ = 0;
  absl::Status status_;  // The first error.
};

}  // namespace skein::cli
