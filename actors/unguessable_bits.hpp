#pragma once

#include <cstdint>

namespace skein::actors {

/// 64 bits of the kernel's generator, never all 0. Any thread.
uint64_t unguessable_bits();

}  // namespace skein::actors
