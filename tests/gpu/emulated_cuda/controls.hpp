#pragma once

#include <cstdint>

/// What a test may make the emulated GPUs do. The plugin exports
/// `void emulated_cuda_set(emulated::Control, int64_t)`; a process that a test starts gets the same
/// from its environment, as EMULATED_CUDA_MEMORY_BYTES, EMULATED_CUDA_WAITS_UNTIL_LOST,
/// EMULATED_CUDA_EPILOGUES and EMULATED_CUDA_GPUS, and loses its GPU as soon as there is a file
/// EMULATED_CUDA_LOST_FILE.
namespace emulated {

enum class Control {
  kMemoryBytes,      // How much memory it has; at first 1 GiB.
  kWaitsUntilLost,   // So many waits from now on succeed, then the device is lost; -1: never.
  kEpilogues,        // 0: the library has no fused products.
  kEvenStridesOnly,  // 1: the library has no products of odd strides, also none of float32.
  kGpus,             // How many the machine has; CUDA_VISIBLE_DEVICES chooses among them.
};

struct Settings {
  int64_t memory_bytes = int64_t{1} << 30;
  int64_t waits_until_lost = -1;
  bool has_epilogues = true;
  bool has_even_strides_only = false;
  int64_t gpus = 1;
};
Settings& settings();

}  // namespace emulated
