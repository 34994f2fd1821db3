#include "cli/run/worker_children.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace skein::cli {
namespace {

/// Of a log's end that goes into an error: enough for one that says why memory is missing.
constexpr std::streamoff kLogTailBytes = 1200;

std::string last_line(const std::string& path) {
  std::ifstream log(path, std::ios::ate);
  if (!log) return "";
  const std::streamoff bytes = log.tellg();
  log.seekg(std::max<std::streamoff>(0, bytes - kLogTailBytes));
  std::string line, last;
  while (std::getline(log, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("ended with code ", WEXITSTATUS(status));
}

}  // namespace

WorkerChildren::~WorkerChildren() {
  kill_all();
  for (Child& child : children_) {
    if (!child.ended) waitpid(child.pid, nullptr, 0);
  }
}

absl::Status WorkerChildren::start(const std::vector<std::string>& addresses,
                                   const RunFolder& folder) {
  const size_t n = children_.size() + 1;
  Child child;
  child.local_rank = free_local_rank();
  child.addresses = addresses;
  child.log = folder.file(absl::StrCat("logs/worker-", n, ".log"));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, child.log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: the terminal's Ctrl-C is for the coordinator, which tells the workers.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<std::string> words = {"skein", "worker"};
  for (const std::string& address : addresses) {
    words.insert(words.end(), {"--join", address});
  }
  words.insert(words.end(), {"--parent", absl::StrCat(getpid()), "--local-rank",
                             absl::StrCat(child.local_rank)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error =
      posix_spawn(&child.pid, "/proc/self/exe", &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot start worker ", n, ": ", strerror(error)));
  }
  children_.push_back(std::move(child));
  return absl::OkStatus();
}

int64_t WorkerChildren::free_local_rank() {
  std::set<int64_t> taken;
  for (const Child& child : children_) {
    if (!child.ended) taken.insert(child.local_rank);
  }
  int64_t rank = 0;
  while (taken.contains(rank)) ++rank;
  return rank;
}

const std::vector<WorkerChildren::Fault>& WorkerChildren::faults() {
  reap();
  return faults_;
}

void WorkerChildren::reap() {
  for (Child& child : children_) {
    int status = 0;
    if (child.ended || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.ended = true;
    if (status == 0) continue;
    const std::string last = last_line(child.log);
    faults_.push_back(
        {absl::UnavailableError(absl::StrCat(
             "the worker process ", child.pid, " ", how_it_ended(status),
             last.empty() ? "" : absl::StrCat(", saying: ", last), " (", child.log, ")")),
         child.addresses});
  }
}

size_t WorkerChildren::living() {
  reap();
  return static_cast<size_t>(std::count_if(children_.begin(), children_.end(),
                                           [](const Child& child) { return !child.ended; }));
}

void WorkerChildren::kill_all() {
  for (Child& child : children_) {
    if (!child.ended) kill(child.pid, SIGKILL);
  }
}

absl::Status die_with_parent(int parent) {
  if (parent == 0) return absl::OkStatus();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the line above.
  if (getppid() == parent) return absl::OkStatus();
  return absl::UnavailableError("the process that started this worker is gone");
}

}  // namespace skein::cli
