#include "bench/gpu/nccl_groups/team.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::bench {
namespace {

/// Longer than the ranks' own time-outs.
constexpr int kAnswerMilliseconds = 100'000;

}  // namespace

RankProcess::RankProcess(int64_t floats, int number) {
  int to[2], from[2];
  SKEIN_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0) << "no pipes";
  const std::string size = std::to_string(floats);
  const std::string host = absl::StrCat("skein-rank-", number);
  process_ = fork();
  SKEIN_CHECK(process_ >= 0) << "no process";
  if (process_ == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    setenv("NCCL_HOSTID", host.c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);  // What all ranks are sure to have.
    setenv("NCCL_IB_DISABLE", "1", 0);
    execl("/proc/self/exe", "nccl_groups", "--rank", size.c_str(), nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : process_(std::exchange(other.process_, 0)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      read_(std::move(other.read_)) {}

RankProcess::~RankProcess() {
  if (to_ >= 0) close(to_);
  if (from_ >= 0) close(from_);
  if (process_ > 0) {
    kill(process_, SIGKILL);  // It may hang in the library.
    waitpid(process_, nullptr, 0);
  }
}

void RankProcess::send(const std::string& line) {
  const std::string whole = line + "\n";
  // A rank that has died is noticed by its missing answer.
  const ssize_t ignored = write(to_, whole.data(), whole.size());
  (void)ignored;
}

absl::StatusOr<std::string> RankProcess::line() {
  for (;;) {
    const size_t end = read_.find('\n');
    if (end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    pollfd wanted{from_, POLLIN, 0};
    if (poll(&wanted, 1, kAnswerMilliseconds) <= 0) {
      return absl::DeadlineExceededError("a rank does not answer");
    }
    char buffer[4096];
    const ssize_t count = read(from_, buffer, sizeof buffer);
    if (count <= 0) return absl::UnavailableError("a rank has ended");
    read_.append(buffer, static_cast<size_t>(count));
  }
}

absl::StatusOr<std::string> RankProcess::answer() {
  const absl::StatusOr<std::string> said = line();
  if (!said.ok()) return said.status();
  std::istringstream in(*said);
  std::string outcome, rest;
  in >> outcome;
  std::getline(in >> std::ws, rest);
  if (outcome != "ok") return absl::InternalError(*said);
  return rest;
}

void RankProcess::await_death() {
  while (line().ok()) {
  }
  waitpid(process_, nullptr, 0);
  process_ = 0;
}

Team::Team(int64_t floats, int count) {
  signal(SIGPIPE, SIG_IGN);
  ranks_.reserve(static_cast<size_t>(count));
  for (int number = 0; number < count; ++number) ranks_.emplace_back(floats, number);
  for (RankProcess& rank : ranks_) {
    const absl::StatusOr<std::string> said = rank.line();
    greeting_ = said.ok() ? *said : absl::StrCat("none ", std::string(said.status().message()));
    if (!greeting_.starts_with("ready ")) return;
  }
}

absl::StatusOr<std::vector<std::string>> Team::ask(const std::vector<int>& members,
                                                   const std::vector<std::string>& commands) {
  for (size_t i = 0; i < members.size(); ++i) rank(members[i]).send(commands[i]);
  std::vector<std::string> answers;
  absl::Status first;
  for (size_t i = 0; i < members.size(); ++i) {
    absl::StatusOr<std::string> answer = rank(members[i]).answer();
    if (!answer.ok() && first.ok()) {
      first = absl::InternalError(absl::StrCat("rank ", members[i], ", ", commands[i].substr(0, 40),
                                               ": ", std::string(answer.status().message())));
    }
    answers.push_back(answer.ok() ? *std::move(answer) : "");
  }
  if (!first.ok()) return first;
  return answers;
}

absl::StatusOr<std::vector<std::string>> Team::ask_all(const std::vector<int>& members,
                                                       const std::string& command) {
  return ask(members, std::vector<std::string>(members.size(), command));
}

}  // namespace skein::bench
