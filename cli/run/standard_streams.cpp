#include "cli/run/standard_streams.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace skein::cli {
namespace {

bool reader_has_left() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace

void hold_standard_descriptors() {
  int descriptor = open("/dev/null", O_RDWR);  // The lowest that is free.
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

absl::Status flush_standard_output() {
  std::cout.flush();
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (is_written || reader_has_left()) return absl::OkStatus();
  return absl::UnavailableError("cannot write to standard output: is its disk full?");
}

}  // namespace skein::cli
