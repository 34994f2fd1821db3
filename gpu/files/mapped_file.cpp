#include "gpu/files/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::gpu {
namespace {

absl::Status file_error(const std::string& path, int error) {
  const std::string text = absl::StrCat("cannot read ", path, ": ", strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

MappedFile::Version version_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
          info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

volatile sig_atomic_t exit_code = 1;

/// Only what a signal's handler may do.
void say_truncated(int) {
  constexpr char kText[] =
      "skein: a file that is read through memory (training data or a checkpoint) has become "
      "shorter "
      "or cannot be read any more; nothing can be trained on it\n";
  const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  (void)written;
  _exit(exit_code);
}

}  // namespace

MappedFile::~MappedFile() {
  if (bytes() > 0) munmap(const_cast<std::byte*>(data_), bytes());
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return file_error(path, errno);
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::DataLossError(absl::StrCat("cannot read ", path, ": not a regular file"));
  }
  const Version version = version_of(info);
  if (version.bytes == 0) {
    close(fd);
    return std::make_shared<const MappedFile>(path, version, nullptr);
  }
  void* memory = mmap(nullptr, version.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) return file_error(path, error);
  return std::make_shared<const MappedFile>(path, version, static_cast<const std::byte*>(memory));
}

bool MappedFile::is_unchanged() const {
  struct stat info {};
  return stat(path_.c_str(), &info) == 0 && version_of(info) == version_;
}

absl::Status MappedFile::check_length() const {
  struct stat info {};
  // What has another file's name by now, or none, is still mapped.
  const bool is_it = stat(path_.c_str(), &info) == 0 && info.st_dev == version_.device &&
                     info.st_ino == version_.inode;
  if (!is_it || static_cast<uint64_t>(info.st_size) >= version_.bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_, " had ", version_.bytes,
                                          " bytes when it was opened, ", "and has ", info.st_size,
                                          " now; nothing can be trained on it"));
}

void end_on_truncated_files(int code) {
  exit_code = code;
  struct sigaction action {};
  action.sa_handler = say_truncated;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace skein::gpu
