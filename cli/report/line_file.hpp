#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace skein::cli {

/// A file to which whole lines are appended. While its disk is full lines are kept in memory, at
/// most a MiB of them, and written when there is space again; no line is ever written in part.
class LineFile {
 public:
  LineFile() = default;
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  /// Makes the file if there is none. A last line without an end, which a writer that was killed
  /// has left, is cut off before the next line; if it cannot be, it gets an end. Unavailable with
  /// the reason.
  absl::Status open(const std::string& path);
  void append(const std::string& line);
  size_t bytes() const { return bytes_; }  // Those of its whole lines.

 private:
  void cut_torn();

  int file_ = -1;
  size_t bytes_ = 0;
  size_t torn_bytes_ = 0;  // Behind them, until the first line is appended.
  std::string waiting_;    // Whole lines, after the end of the one before them.
};

}  // namespace skein::cli
