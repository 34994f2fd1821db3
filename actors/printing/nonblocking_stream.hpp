#pragma once

#include <sys/types.h>

#include <string_view>

namespace skein::actors {

/// What a descriptor of this process is open for, as a stream that is never waited for: for a pipe
/// or a terminal a description of its own, so that whoever shares the descriptor blocks as before.
/// Where there can be none (no /proc, or another user's terminal), small pieces are written when
/// the stream says that it has room. One thread at a time.
class NonblockingStream {
 public:
  /// `descriptor` is open as long as this lives.
  explicit NonblockingStream(int descriptor);
  ~NonblockingStream();
  NonblockingStream(const NonblockingStream&) = delete;
  NonblockingStream& operator=(const NonblockingStream&) = delete;

  /// True as soon as it may take something; false if it does not for so long.
  bool wait(int milliseconds) const;
  /// Bytes that it has taken; 0: it takes none now; -1 with errno: it never will. Of a pipe that
  /// has several writers, up to PIPE_BUF bytes are taken together or not at all.
  ssize_t write_some(std::string_view text);
  /// The errno says that whoever was to read has gone.
  bool has_lost_reader(int error) const;

 private:
  int descriptor_;
  bool is_own_ = false;  // Ours to close.
};

}  // namespace skein::actors
