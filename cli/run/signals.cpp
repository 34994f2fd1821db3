#include "cli/run/signals.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "plans/base/check.hpp"

namespace skein::cli {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  SKEIN_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0) << "signal mask";
  fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  SKEIN_CHECK(fd_ >= 0) << "signalfd";
}

Signals::~Signals() { close(fd_); }

int Signals::wait(double timeout_seconds) {
  pollfd waiting{fd_, POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(timeout_seconds * 1e3)) <= 0) return 0;
  signalfd_siginfo info{};
  return read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace skein::cli
