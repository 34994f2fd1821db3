#include "gpu/host/machine_memory.hpp"

#include <sys/sysinfo.h>

#include <fstream>
#include <string>

namespace skein::gpu {

int64_t machine_memory_bytes() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return 0;
  return static_cast<int64_t>(info.totalram) * info.mem_unit;
}

int64_t available_memory_bytes() {
  constexpr int64_t kKilobyte = 1024;  // What the file calls kB.
  std::ifstream info("/proc/meminfo");
  for (std::string name; info >> name;) {
    int64_t kilobytes = 0;
    if (name == "MemAvailable:" && info >> kilobytes) return kilobytes * kKilobyte;
  }
  return 0;
}

}  // namespace skein::gpu
