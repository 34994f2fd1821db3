#pragma once

#include <chrono>
#include <span>
#include <string>

namespace skein::cli {

/// Whether the command of these words of the command line waits for signals.
bool looks_at_signals(std::span<const std::string> words);

/// SIGINT, SIGTERM and SIGHUP (the terminal is gone; unless it is ignored) as something to wait for
/// instead of a handler. Made before any thread, so that all of them have the signals blocked. One
/// per process, and only where somebody waits: a command that never looks could not be ended by
/// them.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The next signal, or 0 if none comes within the time. Readable at once after a signal. Signals
  /// that come within half a second are one: `timeout` sends two, and so does a terminal to a
  /// program whose parent passes on its own.
  int wait(double timeout_seconds);

 private:
  int fd_ = -1;
  std::chrono::steady_clock::time_point first_;  // The last one that counted; none: the epoch.
};

}  // namespace skein::cli
