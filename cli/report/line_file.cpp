#include "cli/report/line_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

constexpr size_t kWaitingMax = 1 << 20;

}  // namespace

LineFile::~LineFile() {
  if (file_ >= 0) close(file_);
}

absl::Status LineFile::open(const std::string& path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const off_t end = file_ < 0 ? -1 : lseek(file_, 0, SEEK_END);
  if (end < 0)
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  bytes_ = static_cast<size_t>(end);
  char last = '\n';
  if (end > 0 && pread(file_, &last, 1, end - 1) == 1 && last != '\n') waiting_ = "\n";
  return absl::OkStatus();
}

void LineFile::append(const std::string& line) {
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
