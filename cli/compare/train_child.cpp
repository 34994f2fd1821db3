#include "cli/compare/train_child.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace skein::cli {

absl::StatusOr<std::unique_ptr<TrainChild>> TrainChild::start(std::vector<std::string> words,
                                                              const std::string& log) {
  words.insert(words.begin(), {"skein", "train", "--parent", absl::StrCat(getpid())});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: the terminal's Ctrl-C comes to us, and we tell it.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot start skein train: ", strerror(error)));
  }
  return std::unique_ptr<TrainChild>(new TrainChild(pid));  // Private.
}

TrainChild::~TrainChild() {
  if (poll()) return;
  signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<int> TrainChild::poll() {
  int status = 0;
  if (ended_ || waitpid(pid_, &status, WNOHANG) != pid_) return ended_;
  ended_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended_;
}

void TrainChild::signal(int number) {
  if (!ended_) kill(pid_, number);
}

}  // namespace skein::cli
