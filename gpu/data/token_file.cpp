#include "gpu/data/token_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

constexpr uint64_t kHeaderBytes = 256 * 4;
constexpr int32_t kMagic16 = 20240520;
constexpr int32_t kMagic32 = 20240801;

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

int32_t TokenArray::at(int64_t index) const {
  uint32_t value = 0;  // Little-endian, like every machine that is supported.
  std::memcpy(&value, data + index * width, static_cast<size_t>(width));
  return static_cast<int32_t>(value);
}

absl::StatusOr<TokenArray> open_text(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  return TokenArray{file, file->data(), 1, static_cast<int64_t>(file->bytes())};
}

absl::StatusOr<TokenArray> open_tokens(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  std::array<int32_t, 3> header{};
  if (file->bytes() >= kHeaderBytes) std::memcpy(header.data(), file->data(), sizeof(header));
  const bool is_llmc = header[0] == kMagic16 || header[0] == kMagic32;
  if (is_llmc) {
    const int32_t width = header[0] == kMagic16 ? 2 : 4;
    const int32_t version = header[0] == kMagic16 ? 1 : 7;
    const uint64_t expected = kHeaderBytes + static_cast<uint64_t>(header[2]) * width;
    if (header[1] != version || header[2] < 0 || file->bytes() != expected) {
      return absl::DataLossError(absl::StrCat(path, ": its header says version ", header[1],
                                              " and ", header[2], " tokens, which is ", expected,
                                              " bytes, but the file has ", file->bytes(),
                                              "; it is truncated or of another version"));
    }
    return TokenArray{file, file->data() + kHeaderBytes, width, header[2]};
  }
  if (file->bytes() % 2 != 0) {
    return absl::DataLossError(absl::StrCat(path, " has ", file->bytes(),
                                            " bytes, which is no whole number of 16-bit tokens; "
                                            "it is truncated, or not a token file"));
  }
  return TokenArray{file, file->data(), 2, static_cast<int64_t>(file->bytes() / 2)};
}

}  // namespace skein::gpu
