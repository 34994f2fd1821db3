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

  /// Makes the file if there is none. A last line without an end, which a machine that stopped may
  /// have left, gets one before the next line. Unavailable with the reason.
  absl::Status open(const std::string& path);
  void append(const std::string& line);
  size_t bytes() const { return bytes_; }  // In the file.

 private:
  int file_ = -1;
  size_t bytes_ = 0;
  std::string waiting_;  // Whole lines, after the end of the one before them.
};

}  // namespace skein::cli
