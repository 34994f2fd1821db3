#include "cli/report/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

constexpr size_t kWaitingMax = 1 << 20;

/// Bytes behind the end of the last whole line.
size_t count_torn(int file, off_t end) {
  std::array<char, 4096> part{};
  off_t at = end;
  while (at > 0) {
    const off_t count = std::min<off_t>(at, part.size());
    if (pread(file, part.data(), static_cast<size_t>(count), at - count) != count) return 0;
    const size_t found = std::string_view(part.data(), static_cast<size_t>(count)).rfind('\n');
    if (found != std::string_view::npos) {
      return static_cast<size_t>(end - at + count) - found - 1;
    }
    at -= count;
  }
  return static_cast<size_t>(end);
}

}  // namespace

LineFile::~LineFile() {
  if (file_ >= 0) close(file_);
}

absl::Status LineFile::open(const std::string& path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const off_t end = file_ < 0 ? -1 : lseek(file_, 0, SEEK_END);
  if (end < 0)
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  torn_bytes_ = count_torn(file_, end);
  bytes_ = static_cast<size_t>(end) - torn_bytes_;
  return absl::OkStatus();
}

/// Not when the file is opened: its run may still have a writer, whose line is not torn.
void LineFile::cut_torn() {
  const size_t torn = std::exchange(torn_bytes_, 0);
  if (torn == 0) return;
  struct stat now {};
  const bool is_same = fstat(file_, &now) == 0 && now.st_size == static_cast<off_t>(bytes_ + torn);
  if (is_same && ftruncate(file_, static_cast<off_t>(bytes_)) == 0) return;
  bytes_ += torn;
  waiting_ = "\n";
}

void LineFile::append(const std::string& line) {
  cut_torn();
  if (waiting_.size() + line.size() < kWaitingMax) absl::StrAppend(&waiting_, line, "\n");
  const ssize_t written = write(file_, waiting_.data(), waiting_.size());
  if (written == static_cast<ssize_t>(waiting_.size())) {
    bytes_ += waiting_.size();
    waiting_.clear();
  } else if (written > 0 && ftruncate(file_, static_cast<off_t>(bytes_)) != 0) {
    waiting_.erase(0, static_cast<size_t>(written));  // What is there stays there.
    bytes_ += static_cast<size_t>(written);
  }
}

}  // namespace skein::cli
