#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plans/job/model_spec.hpp"

namespace skein::plans {

/// What layers take of a device's memory, in bytes.
struct LayerRoom {
  int64_t free_bytes = 0;            // 0: nobody knows, so all of them fit.
  int64_t fixed_bytes = 0;           // Beside the layers, whichever these are, if there is one.
  std::vector<int64_t> layer_bytes;  // [L], >= 0.
  // All layers together take so much less, as those at the two ends share a tied embedding; at most
  // the sum of `layer_bytes`.
  int64_t shared_bytes = 0;
  bool operator==(const LayerRoom&) const = default;
};

struct MemoryCut {
  std::vector<LayerRange> ranges;  // [P], which tile [0, L) in order. Some may be empty.
  int64_t missing_bytes = 0;       // On the last device; 0: all layers fit.
};

/// Cuts layers over devices, in the order of both, so that what they have is as even as their
/// memory allows: the sum of the squares of what their layers take is the least.
///
/// `rooms`   [P]  P >= 1, with the same number of layers.
/// Returns        such a cut, of equal ones that with the earlier cuts. If there is none: each
///                device has as many layers as fit, and the last one those that are left.
/// Cost           O(P * L^2) time, O(P * L) memory.
MemoryCut cut_by_memory(std::span<const LayerRoom> rooms);

}  // namespace skein::plans
