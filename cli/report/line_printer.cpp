#include "cli/report/line_printer.hpp"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

constexpr size_t kUnreadMax = 1 << 20;
/// A pipe that can be written to at all takes so much at once.
constexpr size_t kPieceBytes = PIPE_BUF;

}  // namespace

LinePrinter::LinePrinter(int descriptor) : descriptor_(descriptor) {}

void LinePrinter::print(const std::string& line) {
  flush(0);
  if (left_out_ > 0 && waiting_.empty()) {
    waiting_ = absl::StrCat("(", left_out_, " lines were left out: nobody read them)\n");
    left_out_ = 0;
  }
  if (left_out_ > 0 || waiting_.size() + line.size() >= kUnreadMax) {
    ++left_out_;
    return;
  }
  absl::StrAppend(&waiting_, line, "\n");
  flush(0);
}

absl::Status LinePrinter::finish(double patience_seconds) {
  flush(patience_seconds < 0 ? -1 : static_cast<int>(patience_seconds * 1e3));
  return status_;
}

void LinePrinter::flush(int patience_ms) {
  size_t printed = 0;
  while (printed < waiting_.size()) {
    pollfd stream{descriptor_, POLLOUT, 0};
    const int ready = poll(&stream, 1, patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) break;
    const size_t size = std::min(kPieceBytes, waiting_.size() - printed);
    const ssize_t written = write(descriptor_, waiting_.data() + printed, size);
    if (written > 0) {
      printed += static_cast<size_t>(written);
    } else if (written < 0 && errno != EINTR && errno != EAGAIN) {
      if (errno != EPIPE && errno != EIO) {  // Nor a terminal that is gone.
        status_.Update(absl::UnavailableError(
            absl::StrCat("cannot write to standard output: ", strerror(errno))));
      }
      printed = waiting_.size();
    }
  }
  waiting_.erase(0, printed);
}

}  // namespace skein::cli
