#pragma once

#include <cstdint>

/// What a test may make the emulated GPU do. The plugin exports
/// `void emulated_cuda_set(emulated::Control, int64_t)`.
namespace emulated {

enum class Control {
  kMemoryBytes,     // How much memory it has; at first 1 GiB.
  kWaitsUntilLost,  // So many waits from now on succeed, then the device is lost; -1: never.
  kEpilogues,       // 0: the library has no fused products.
};

struct Settings {
  int64_t memory_bytes = int64_t{1} << 30;
  int64_t waits_until_lost = -1;
  bool has_epilogues = true;
};
Settings& settings();

}  // namespace emulated
