#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "actors/printing/nonblocking_stream.hpp"

namespace skein::actors {

/// Prints whole lines for somebody who may stop reading: a pager, a terminal that is held, a
/// collector of logs that hangs. `print` never waits: what the reader does not take waits here, at
/// most a MiB of it, and lines that are more than that are left out and counted. Several of them,
/// in one process or many, may print to one stream: each line of up to PIPE_BUF bytes stays whole.
/// One thread at a time.
class LinePrinter {
 public:
  /// Patience for `finish`, in seconds: as long as it takes; and for the end of a process, whose
  /// last lines are for somebody who still reads.
  static constexpr double kUntilRead = -1;
  static constexpr double kAtEnd = 5;

  /// `descriptor` is open as long as this lives; `name` is what errors call it.
  LinePrinter(int descriptor, std::string name);
  LinePrinter(const LinePrinter&) = delete;
  LinePrinter& operator=(const LinePrinter&) = delete;

  void print(const std::string& line);
  /// Gives the reader time for what waits: returns when all is printed, or when nothing was taken
  /// for `patience_seconds`; a reader that was given up so is not waited for again before it has
  /// taken something. Unavailable if a line could not be written; whoever has closed the
  /// stream has what it wanted.
  absl::Status finish(double patience_seconds);
  size_t waiting_bytes() const { return waiting_.size() - printed_; }

 private:
  void flush(double patience_seconds);
  void tell_left_out();
  bool write_piece();

  const std::string name_;
  NonblockingStream stream_;
  std::string waiting_;    // Whole lines, but for what is printed of the first one.
  size_t printed_ = 0;     // Bytes of `waiting_`.
  uint64_t left_out_ = 0;  // Lines.
  bool gave_up_ = false;   // The reader has taken nothing since.
  absl::Status status_;    // The first error.
};

}  // namespace skein::actors
