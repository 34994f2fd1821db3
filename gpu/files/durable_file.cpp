#include "gpu/files/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

std::atomic<int64_t> failing_operation{0};
std::atomic<int64_t> operations{0};

FileOperationWatch& watcher() {
  static FileOperationWatch watch;
  return watch;
}

absl::Status error_of(const std::string& path, const char* what, int error) {
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

absl::Status write_all(int fd, const std::string& path, std::span<const std::byte> bytes) {
  SKEIN_RETURN_IF_ERROR(count_file_operation(path, "write"));
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return error_of(path, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status write_and_sync(const std::string& path,
                            const std::vector<std::span<const std::byte>>& pieces) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return error_of(path, "create", errno);
  absl::Status status;
  for (const auto& piece : pieces) {
    if (status.ok()) status = write_all(fd, path, piece);
  }
  if (status.ok()) status = count_file_operation(path, "sync");
  if (status.ok() && fsync(fd) != 0) status = error_of(path, "sync", errno);
  if (close(fd) != 0 && status.ok()) status = error_of(path, "close", errno);
  return status;
}

}  // namespace

void fail_file_operation(int64_t n) {
  operations = 0;
  failing_operation = n;
}

void watch_file_operations(FileOperationWatch watch) { watcher() = std::move(watch); }

void note_file_operation(const std::string& path, const char* what) {
  if (const FileOperationWatch& watch = watcher()) watch(path, what);
}

absl::Status count_file_operation(const std::string& path, const char* what) {
  note_file_operation(path, what);
  const int64_t failing = failing_operation;
  if (failing == 0 || ++operations < failing) return absl::OkStatus();
  return error_of(path, what, ENOSPC);
}

absl::Status write_durably(const std::string& path, std::string_view contents) {
  return write_durably(path, {std::as_bytes(std::span(contents.data(), contents.size()))});
}

absl::Status write_durably(const std::string& path,
                           const std::vector<std::span<const std::byte>>& pieces) {
  // Two processes that write the same file must not share the temporary one.
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  absl::Status status = write_and_sync(temporary, pieces);
  if (status.ok()) status = count_file_operation(path, "rename");
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = error_of(path, "rename", errno);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const size_t slash = path.rfind('/');
  return sync_folder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

absl::Status sync_folder(const std::string& folder) {
  SKEIN_RETURN_IF_ERROR(count_file_operation(folder, "sync"));
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return error_of(folder, "open", errno);
  const bool synced = fsync(fd) == 0;
  const int error = errno;
  close(fd);
  return synced ? absl::OkStatus() : error_of(folder, "sync", error);
}

}  // namespace skein::gpu
