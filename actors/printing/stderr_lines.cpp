#include "actors/printing/stderr_lines.hpp"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>

namespace skein::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook(20);
/// Whoever holds the mutex for so long was ended in the middle of it.
constexpr std::chrono::seconds kHeldMax(1);

struct ErrorLines {
  std::timed_mutex mutex;
  LinePrinter printer{STDERR_FILENO, "standard error"};  // Guarded by mutex.
};

/// Never destroyed: threads may print to the end.
ErrorLines& error_lines() {
  static ErrorLines& lines = *std::make_unique<ErrorLines>().release();
  return lines;
}

}  // namespace

void print_error_line(const std::string& line) {
  ErrorLines& lines = error_lines();
  const std::unique_lock lock(lines.mutex, kHeldMax);
  if (lock.owns_lock()) lines.printer.print(line);
}

void finish_error_lines(double patience_seconds) {
  ErrorLines& lines = error_lines();
  size_t left = SIZE_MAX;
  for (auto last = Clock::now();; poll(nullptr, 0, static_cast<int>(kLook.count()))) {
    const std::unique_lock lock(lines.mutex, kHeldMax);
    if (!lock.owns_lock()) return;
    lines.printer.finish(0).IgnoreError();
    const size_t now_left = lines.printer.waiting_bytes();
    if (now_left == 0) return;
    if (now_left < left) last = Clock::now();
    left = now_left;
    if (std::chrono::duration<double>(Clock::now() - last).count() >= patience_seconds) return;
  }
}

}  // namespace skein::actors
