#include "actors/coordinator/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::actors {

absl::StatusOr<std::unique_ptr<RunLock>> RunLock::take(const std::string& run_folder) {
  const std::string path = run_folder + "/coordinator.lock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    return absl::UnavailableError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  }
  std::unique_ptr<RunLock> lock(new RunLock(file));  // Private.
  if (flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
  return absl::FailedPreconditionError(
      absl::StrCat("another coordinator runs the job of ", run_folder,
                   "; two would commit steps twice: end it first, or join it with skein worker"));
}

bool RunLock::is_held(const std::string& run_folder) {
  const int file = open((run_folder + "/coordinator.lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_free = flock(file, LOCK_SH | LOCK_NB) == 0;
  close(file);
  return !is_free;
}

RunLock::~RunLock() { close(file_); }

}  // namespace skein::actors
