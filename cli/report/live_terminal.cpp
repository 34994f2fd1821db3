#include "cli/report/live_terminal.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace skein::cli {
namespace {

// As xterm and all that follow it understand them.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l";  // Other screen, no cursor.
constexpr std::string_view kLeave = "\033[?25h\033[?1049l";
constexpr std::string_view kHome = "\033[H";
constexpr std::string_view kLineEnd = "\033[0m\033[K";
constexpr std::string_view kBelow = "\033[J";
/// What changes the screen for good is given so long.
constexpr int kPatienceMs = 1000;

winsize size_now() {
  winsize size{};
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  return size;
}

}  // namespace

bool LiveTerminal::is_possible() {
  const char* kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb" &&
         *kind != '\0';
}

LiveTerminal::LiveTerminal() {
  // A process in the background would be stopped for touching the keyboard.
  reads_keys_ = isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp() &&
                tcgetattr(STDIN_FILENO, &before_) == 0;
  if (reads_keys_) {
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    now.c_cc[VMIN] = 0;
    now.c_cc[VTIME] = 0;
    reads_keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
  }
  put(kEnter, kPatienceMs);
}

LiveTerminal::~LiveTerminal() {
  put(kLeave, kPatienceMs);
  if (reads_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void LiveTerminal::draw(const std::vector<std::string>& lines) {
  std::string text(kHome);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\r\n";
    text.append(lines[i]).append(kLineEnd);
  }
  put(text.append(kBelow), 0);
}

/// What a terminal that is held does not take is left out: the next picture is a whole one. So is
/// what one that is gone does not take; the run goes on without it.
void LiveTerminal::put(std::string_view text, int patience_ms) {
  while (!text.empty() && stream_.wait(patience_ms)) {
    const ssize_t written = stream_.write_some(text);
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

char LiveTerminal::key() {
  pollfd waiting{STDIN_FILENO, POLLIN, 0};
  char pressed = 0;
  if (!reads_keys_ || ::poll(&waiting, 1, 0) <= 0) return 0;
  return read(STDIN_FILENO, &pressed, 1) == 1 ? pressed : 0;
}

int LiveTerminal::columns() const {
  const int columns = size_now().ws_col;
  return columns > 0 ? columns : 80;
}

int LiveTerminal::rows() const {
  const int rows = size_now().ws_row;
  return rows > 0 ? rows : 24;
}

}  // namespace skein::cli
