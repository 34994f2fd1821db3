#pragma once

namespace skein::cli {

/// SIGINT and SIGTERM as something to wait for instead of a handler. Made before any thread, so
/// that all of them have the signals blocked. One per process, and only where somebody waits: a
/// command that never looks could not be ended by them.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The next signal, or 0 if none comes within the time. Readable at once after a signal.
  int wait(double timeout_seconds);

 private:
  int fd_ = -1;
};

}  // namespace skein::cli
