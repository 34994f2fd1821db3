#include "cli/run/signals.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "plans/base/check.hpp"

namespace skein::cli {
namespace {

constexpr std::chrono::milliseconds kTogether(500);
constexpr std::array<std::string_view, 7> kVerbs = {"train", "coordinator", "worker", "compare",
                                                    "demo",  "profile",     "export"};

}  // namespace

bool looks_at_signals(std::span<const std::string> words) {
  const auto verb = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return !word.starts_with("-");  // What may stand before the verb has no values.
  });
  return verb != words.end() && std::find(kVerbs.begin(), kVerbs.end(), *verb) != kVerbs.end();
}

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  // Who ignores it, as nohup does, would be told of it all the same if it were blocked.
  struct sigaction hang_up = {};
  SKEIN_CHECK(sigaction(SIGHUP, nullptr, &hang_up) == 0) << "SIGHUP";
  if (hang_up.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  SKEIN_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0) << "signal mask";
  fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  SKEIN_CHECK(fd_ >= 0) << "signalfd";
}

Signals::~Signals() { close(fd_); }

int Signals::wait(double timeout_seconds) {
  pollfd waiting{fd_, POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(timeout_seconds * 1e3)) <= 0) return 0;
  signalfd_siginfo info{};
  if (read(fd_, &info, sizeof(info)) != sizeof(info)) return 0;
  const auto now = std::chrono::steady_clock::now();
  if (now < first_ + kTogether) return 0;
  first_ = now;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace skein::cli
