#include "actors/printing/stderr_lines.hpp"

#include <unistd.h>

#include <memory>
#include <mutex>

namespace skein::actors {
namespace {

struct ErrorLines {
  std::mutex mutex;
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
  std::lock_guard lock(lines.mutex);
  lines.printer.print(line);
}

void finish_error_lines(double patience_seconds) {
  ErrorLines& lines = error_lines();
  std::lock_guard lock(lines.mutex);
  lines.printer.finish(patience_seconds).IgnoreError();
}

}  // namespace skein::actors
