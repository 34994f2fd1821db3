#include "actors/printing/nonblocking_stream.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace skein::actors {
namespace {

/// A terminal that has room has room for so much.
constexpr size_t kSmallPiece = 256;

/// -1 if there can be none.
int open_again(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return -1;
  if (!S_ISFIFO(status.st_mode) && isatty(descriptor) != 1) return -1;
  return open(absl::StrCat("/proc/self/fd/", descriptor).c_str(),
              O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

NonblockingStream::NonblockingStream(int descriptor) : descriptor_(descriptor) {
  const int own = open_again(descriptor);
  if (own < 0) return;
  descriptor_ = own;
  is_own_ = true;
}

NonblockingStream::~NonblockingStream() {
  if (is_own_) close(descriptor_);
}

bool NonblockingStream::wait(int milliseconds) const {
  pollfd stream{descriptor_, POLLOUT, 0};
  return poll(&stream, 1, milliseconds) == 1;
}

ssize_t NonblockingStream::write_some(std::string_view text) {
  ssize_t written = send(descriptor_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (written < 0 && errno == ENOTSOCK) {
    // What is no pipe, terminal or socket takes what it is given; of what was not opened anew it is
    // asked first.
    if (!is_own_) {
      if (!wait(0)) return 0;
      text = text.substr(0, kSmallPiece);
    }
    written = write(descriptor_, text.data(), text.size());
  }
  return written < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : written;
}

bool NonblockingStream::has_lost_reader(int error) const {
  return error == EPIPE || (error == EIO && isatty(descriptor_) == 1);
}

}  // namespace skein::actors
