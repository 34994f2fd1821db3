#include "actors/printing/line_printer.hpp"

#include <limits.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kUnreadMax = 1 << 20;
/// Between looks at a stream that takes nothing. A terminal may say that it has room, and not take
/// a piece.
constexpr int kLookMs = 20;

}  // namespace

LinePrinter::LinePrinter(int descriptor, std::string name)
    : name_(std::move(name)), stream_(descriptor) {}

void LinePrinter::print(const std::string& line) {
  flush(0);
  tell_left_out();
  const bool fits = waiting_.empty() || waiting_bytes() + line.size() < kUnreadMax;
  if (left_out_ > 0 || !fits) {
    ++left_out_;
    return;
  }
  absl::StrAppend(&waiting_, line, "\n");
  flush(0);
}

/// In place of the lines, once those before them are printed.
void LinePrinter::tell_left_out() {
  if (left_out_ == 0 || !waiting_.empty()) return;
  waiting_ = absl::StrCat("(", std::exchange(left_out_, 0),
                          " lines were left out here: nobody read them)\n");
}

absl::Status LinePrinter::finish(double patience_seconds) {
  flush(gave_up_ ? 0 : patience_seconds);
  tell_left_out();
  flush(gave_up_ ? 0 : patience_seconds);
  return status_;
}

void LinePrinter::flush(double patience_seconds) {
  auto last = Clock::now();
  while (!waiting_.empty()) {
    const bool is_ready = stream_.wait(patience_seconds == 0 ? 0 : kLookMs);
    if (is_ready && write_piece()) {
      last = Clock::now();
      continue;
    }
    const double waited = std::chrono::duration<double>(Clock::now() - last).count();
    if (patience_seconds >= 0 && waited >= patience_seconds) {
      gave_up_ = gave_up_ || patience_seconds > 0;
      return;
    }
    if (is_ready) poll(nullptr, 0, kLookMs);
  }
}

/// Up to the end of a line, so that those of several printers do not mix. False if the stream takes
/// nothing now.
bool LinePrinter::write_piece() {
  std::string_view piece = std::string_view(waiting_).substr(printed_, PIPE_BUF);
  const size_t end = piece.rfind('\n');
  if (end != std::string_view::npos) piece = piece.substr(0, end + 1);
  const ssize_t written = stream_.write_some(piece);
  if (written < 0) {
    const int error = errno;
    if (!stream_.has_lost_reader(error)) {
      status_.Update(
          absl::UnavailableError(absl::StrCat("cannot write to ", name_, ": ", strerror(error))));
    }
    waiting_.clear();
    printed_ = 0;
    return true;
  }
  gave_up_ = gave_up_ && written == 0;
  printed_ += static_cast<size_t>(written);
  if (printed_ == waiting_.size() || printed_ >= kUnreadMax / 4) {
    waiting_.erase(0, std::exchange(printed_, 0));
  }
  return written > 0;
}

}  // namespace skein::actors
