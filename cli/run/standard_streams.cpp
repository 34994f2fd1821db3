#include "cli/run/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace skein::cli {

void hold_standard_descriptors() {
  int descriptor = open("/dev/null", O_RDWR);  // The lowest that is free.
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

}  // namespace skein::cli
