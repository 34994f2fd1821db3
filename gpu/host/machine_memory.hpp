#pragma once

#include <cstdint>

namespace skein::gpu {

/// Memory of this machine in bytes; 0 if the system does not say.
int64_t machine_memory_bytes();
/// What of it can be allocated now without swapping, as the system estimates; 0 if it does not say.
/// Limits of a container do not count.
int64_t available_memory_bytes();

}  // namespace skein::gpu
