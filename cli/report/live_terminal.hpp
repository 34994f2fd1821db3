#pragma once

#include <termios.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "actors/printing/nonblocking_stream.hpp"

namespace skein::cli {

/// A full screen on the terminal of standard output while this lives; what was there before comes
/// back afterwards. It waits for nobody who holds the terminal (Ctrl-S). One per process, used
/// by one thread.
class LiveTerminal {
 public:
  /// False if standard output is no terminal that knows escape codes.
  static bool is_possible();

  LiveTerminal();
  ~LiveTerminal();
  LiveTerminal(const LiveTerminal&) = delete;
  LiveTerminal& operator=(const LiveTerminal&) = delete;

  void draw(const std::vector<std::string>& lines);
  /// A key that was pressed since the last call; 0: none. Ctrl-C is a signal still.
  char key();

  int columns() const;
  int rows() const;

 private:
  void put(std::string_view text, int patience_ms);

  actors::NonblockingStream stream_{STDOUT_FILENO};
  bool reads_keys_ = false;
  termios before_{};
};

}  // namespace skein::cli
